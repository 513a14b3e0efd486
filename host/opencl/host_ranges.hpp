// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/opencl.hpp>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::opencl {

/// Host memory seen as OpenCL buffers (CL_MEM_USE_HOST_PTR), on devices that use it in place.
///
/// OpenCL leaves undefined what happens when two buffers over the same range are in use, so
/// concurrent calls that read the same range share one buffer. Thread-safe.
class HostRanges {
 public:
  explicit HostRanges(const cl::Context& context, std::string device);
  ~HostRanges();

  class Lease {
   public:
    Lease() = default;
    Lease(Lease&&) noexcept;
    Lease& operator=(Lease&&) noexcept;
    ~Lease();
    cl_mem memory() const noexcept { return memory_; }

   private:
    friend class HostRanges;
    HostRanges* ranges_ = nullptr;
    const void* data_ = nullptr;
    std::int64_t bytes_ = 0;
    cl_mem memory_ = nullptr;
  };

  /// A buffer over exactly these bytes. `argument` is for messages.
  Lease wrap(const void* data, std::int64_t bytes, const char* argument);
  std::int64_t live() const noexcept;  ///< buffers at the moment (for tests)

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::opencl
