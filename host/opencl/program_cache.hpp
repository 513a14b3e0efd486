// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/opencl.hpp>
#include <cstdint>
#include <memory>
#include <string>

namespace tessera::opencl {

/// A specialisation of one kernel file: what is compiled.
struct Specialisation {
  std::string file;     ///< path inside cl_kernels
  std::string options;  ///< "-DENGINE_CPU=1 -DX_TYPE=1 ..."; part of the cache key
};

/// Builds each specialisation once per Context, and lends cl_kernel objects (which hold their
/// arguments, so that two threads must not share one).
class ProgramCache {
 public:
  ProgramCache(const cl::Context& context, const cl::Device& device);
  ~ProgramCache();

  /// A kernel of the specialisation, returned to the cache when the lease ends.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&&) noexcept;
    Lease& operator=(Lease&&) noexcept;
    ~Lease();
    const cl::Kernel& operator*() const noexcept { return kernel_; }

   private:
    friend class ProgramCache;
    struct Shelf;  // where idle kernels of one entry wait; lives as long as the cache
    Shelf* shelf_ = nullptr;
    cl::Kernel kernel_;
  };

  /// Compiles on first use; threads that ask for the same specialisation wait for one build.
  /// A failed build throws Error build_failed with the compiler's log, is remembered, and throws
  /// the same again. (Running out of memory while building is not remembered.)
  Lease kernel(const Specialisation& specialisation, const std::string& entry);

  /// Times the compiler ran so far, failures included (for tests and reports).
  std::int64_t builds() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::opencl
