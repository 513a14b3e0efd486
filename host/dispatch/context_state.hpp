// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "host/dispatch/host_workspace.hpp"
#include "host/dispatch/recorder.hpp"
#include "host/dispatch/thread_pool.hpp"
#include "host/dispatch/warnings.hpp"
#include "tessera/context.hpp"
#include "tessera/view.hpp"

namespace tessera {

/// The device half of a Context. This module knows no OpenCL: host/opencl derives from it.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual const DeviceInfo& info() const noexcept = 0;
  virtual cl_context native_context() const noexcept = 0;
  virtual cl_device_id native_device() const noexcept = 0;
  virtual cl_command_queue native_queue() const noexcept = 0;
  /// Whether this is the description of a device that is not here: nothing can run.
  virtual bool only_plans() const noexcept = 0;
  virtual void trim() = 0;
  /// Before the first call: compiled programs are kept in files of the folder, for later processes.
  /// Throws std::system_error where no file can be made there, and Error, which says why, where the
  /// folder is not this user's alone.
  virtual void keep_programs(const std::string& folder) = 0;
  /// Before the first call: what is compiled is left in the folder, for people to read. `warnings`
  /// is told where that fails later. Throws std::system_error where no file can be made there.
  virtual void dump_programs(const std::string& folder,
                             std::shared_ptr<dispatch::WarningLog> warnings) = 0;
  virtual std::int64_t pooled_bytes() const noexcept = 0;

  // Checks of a call's arguments; `argument` names the view, queue or event in the message.
  /// Error foreign_context when the memory belongs to another context, invalid_argument when the
  /// view reaches beyond it, or when it was made for the host or the kernel alone to do what the
  /// call does: to read an input, to write an output (`is_written`).
  virtual void check_memory(const View& view, const char* argument, bool is_written) const = 0;
  /// The same elements where they lie: in the buffer that a sub-buffer is a part of, or in the host
  /// memory that a buffer was made to use.
  virtual View underlying(const View& view) const = 0;
  virtual void check_queue(cl_command_queue queue) const = 0;
  virtual void check_events(std::span<const cl_event> events) const = 0;

  // For implementations that run on the host. Blocking. A null queue means the context's.
  virtual void wait_for(std::span<const cl_event> events) = 0;
  virtual void* map(cl_command_queue queue, cl_mem memory, std::int64_t byte_offset,
                    std::int64_t bytes, bool write) = 0;
  virtual void unmap(cl_mem memory, void* pointer) = 0;
};

/// What copies of one Context share.
class ContextState : public std::enable_shared_from_this<ContextState> {
 public:
  ContextState(const ContextOptions& options, std::shared_ptr<DeviceRuntime> runtime,
               std::string tile_chip_name = {})
      : warnings(options.warning_handler),
        threads(options.threads),
        device(std::move(runtime)),
        tile_chip(std::move(tile_chip_name)) {}

  mutable dispatch::WarningLog warnings;  ///< a warning changes nothing that a call sees
  mutable dispatch::ThreadPool threads;   ///< they change nothing either
  /// The reading of the user's tuned file whose faults were handed to `warnings`; -1: none.
  mutable std::atomic<std::int64_t> warned_of_tables = -1;
  mutable dispatch::Profiling profiling;  ///< nor does this
  dispatch::HostWorkspaces workspaces;
  /// nullptr: host only.
  const std::shared_ptr<DeviceRuntime> device;
  /// The TPU that implementations on the tile machine take for theirs; empty: their default.
  const std::string tile_chip;
};

}  // namespace tessera
