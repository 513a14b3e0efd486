// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/opencl.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/dispatch/context_state.hpp"
#include "host/opencl/device_facts.hpp"

namespace tessera::opencl {

class HostRanges;     // host_ranges.hpp
class ProgramCache;   // program_cache.hpp
class WorkspacePool;  // workspace_pool.hpp

/// An OpenCL context, device and queue, with compiled programs and pooled memory; shared by every
/// call on one Context. Thread-safe.
class Runtime final : public DeviceRuntime {
 public:
  /// The device that `options.device`, else TESSERA_DEVICE, else the default order selects; of a
  /// CPU `options.threads` of its units where those are fewer, as a sub-device. nullptr: nothing
  /// was asked for and there is none, or no driver. Throws Error device_not_found.
  static std::shared_ptr<Runtime> open(const ContextOptions& options);
  /// The caller's handles, retained; `queue` nullptr: a queue is made. A queue alone brings its
  /// context and device along.
  static std::shared_ptr<Runtime> wrap(cl_context context, cl_device_id device,
                                       cl_command_queue queue);
  /// The machine of that name, which is not here, for `plan` alone. Touches no driver. Throws Error
  /// device_not_found, which lists the names.
  static std::shared_ptr<Runtime> describe(const std::string& machine);
  ~Runtime() override;

  const DeviceInfo& info() const noexcept override;
  cl_context native_context() const noexcept override;
  cl_device_id native_device() const noexcept override;
  cl_command_queue native_queue() const noexcept override;
  bool only_plans() const noexcept override;
  void trim() override;
  void keep_programs(const std::string& folder) override;
  void dump_programs(const std::string& folder,
                     std::shared_ptr<dispatch::WarningLog> warnings) override;
  std::int64_t pooled_bytes() const noexcept override;
  void check_memory(const View& view, const char* argument, bool is_written) const override;
  View underlying(const View& view) const override;
  void check_queue(cl_command_queue queue) const override;
  void check_events(std::span<const cl_event> events) const override;
  void wait_for(std::span<const cl_event> events) override;
  void* map(cl_command_queue queue, cl_mem memory, std::int64_t byte_offset, std::int64_t bytes,
            bool write) override;
  void unmap(cl_mem memory, void* pointer) override;

  /// Why nothing can be enqueued: this is a forked child of the process that first used OpenCL,
  /// whose drivers' threads and locks it does not share. Nothing: it can.
  static std::optional<std::string> why_unusable();
  /// Throws Error unsupported, with that reason, where `what` needs the parent's driver.
  static void require_usable(const char* what);
  /// Why no kernel can be compiled or run: `why_unusable`, or static objects are being destroyed,
  /// and the driver's among them. Nothing: one can.
  static std::optional<std::string> why_no_kernels();
  /// Says that this process is about to use a driver.
  static void uses_driver() noexcept;

  const DeviceFacts& facts() const noexcept;
  /// Why all of a CPU device works where ContextOptions::threads asked for fewer of its units;
  /// empty: it was not asked, or they are as many.
  const std::string& why_whole() const noexcept;
  const cl::Context& context() const noexcept;
  const cl::Device& device() const noexcept;
  const cl::CommandQueue& queue() const noexcept;
  ProgramCache& programs() noexcept;
  WorkspacePool& pool() noexcept;
  HostRanges& host_ranges() noexcept;
  /// The queue that calls within a profile use in place of the context's own, made when first asked
  /// for; nullptr where that is a caller's.
  cl_command_queue profiling_queue();
  /// Whether a queue was made with profiling.
  bool keeps_times(cl_command_queue queue) const;
  /// Of the context's own queue or a caller's.
  bool is_out_of_order(cl_command_queue queue) const;
  /// Whether a failed command fails all that follow it. PoCL does so; Intel's runtime for CPUs
  /// (2026.22) fails only what waits for the failed event itself, and runs what comes after.
  bool ends_what_follows() const;

  /// What an operator keeps for this device between calls: one T, made when first asked for. T is
  /// thread-safe on its own.
  template <class T>
  T& keep() {
    static const char key = 0;  // its address tells one T from another
    return *static_cast<T*>(
        kept(&key, [] { return std::static_pointer_cast<void>(std::make_shared<T>()); }));
  }

  /// For tests: another kind of device ("not zero_copy" takes the staged path on any machine). Only
  /// while no call runs.
  DeviceFacts& facts_for_test() noexcept;

 private:
  Runtime();
  void* kept(const void* key, std::shared_ptr<void> (*make)());
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The runtime behind a context, or nullptr when it is host only.
Runtime* runtime_of(ContextState& state) noexcept;

}  // namespace tessera::opencl
