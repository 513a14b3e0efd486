// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/cl.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace tessera::bench::latency {

/// A command as it was enqueued, ready to be enqueued again without the library.
struct Command {
  enum class Kind { kernel, map, unmap, read, write, wait, flush };
  Kind kind = Kind::kernel;
  std::string name{};  ///< of the kernel
  cl_kernel kernel = nullptr;
  std::vector<cl_mem> arguments{};  ///< memory that the kernel's arguments name
  cl_uint dimensions = 0;
  std::vector<std::size_t> global{};
  std::vector<std::size_t> local{};  ///< empty: the driver's choice
  cl_mem memory = nullptr;
  cl_bool blocking = CL_FALSE;
  cl_map_flags flags = 0;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::vector<char> data{};  ///< what a write wrote; where a replayed read goes
};

/// What one call of the library enqueued. Kernels are objects of the chain's own whose arguments
/// are set once, so that a replay is nothing but the enqueueing and the waiting.
class Chain {
 public:
  Chain() = default;
  Chain(Chain&& other) noexcept;
  Chain& operator=(Chain&&) = delete;
  ~Chain();

  /// Enqueues every command on `queue` and waits where the library waited. Throws
  /// std::runtime_error when the driver refuses.
  void replay(cl_command_queue queue);
  /// "gather_labels compact forward map unmap", without waits and flushes.
  std::string text() const;
  int kernels() const;
  int commands() const;  ///< kernels, transfers, maps and unmaps

  /// Calls of each driver function during the recording: "clSetKernelArg" -> 143.
  const std::map<std::string, long>& driver_calls() const { return driver_calls_; }

 private:
  friend class Recorder;
  std::vector<Command> commands_{};
  std::map<std::string, long> driver_calls_{};
};

/// The functions of the driver that this program defines itself stand before those of the loader
/// (recorder.cpp) and hand over to them; in between they remember what `Recorder` asks for.
class Recorder {
 public:
  /// Kernel arguments are remembered from now on: before the context whose calls are recorded is
  /// made, because the library need not set what has not changed.
  static void follow_arguments(bool on);
  static void start();
  /// Throws std::runtime_error for a call that this program cannot replay.
  static Chain stop();
};

}  // namespace tessera::bench::latency
