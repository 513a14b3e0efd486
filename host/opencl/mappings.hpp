// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/opencl.hpp>
#include <cstdint>
#include <string>

namespace tessera::opencl {

/// Maps the callers' buffers for work on the host, from any thread.
///
/// Threads may map one buffer at once, which drivers get wrong: PoCL 3.1 changes a buffer's list of
/// mappings without a lock, and ends the process. So maps and unmaps come one at a time, over all
/// contexts of the process, since two of them may share a cl_mem. They go through a queue that
/// nobody else has: what a caller's queue waits for cannot hold up a thread that holds the lock.
class Mappings {
 public:
  Mappings(const cl::Context& context, const cl::Device& device, std::string name);

  /// Blocks until what was enqueued on the in-order `after` has run, and the map; nullptr: there is
  /// no such queue. Throws Error.
  void* map(cl_command_queue after, cl_mem memory, std::int64_t byte_offset, std::int64_t bytes,
            bool write);
  /// Blocks until it has run. Throws Error.
  void unmap(cl_mem memory, void* pointer);

 private:
  void wait_for(cl_command_queue queue);

  cl::Context context_;
  cl::Device device_;
  std::string name_;
  cl::CommandQueue queue_;  // made by the first map, with the lock held
};

}  // namespace tessera::opencl
