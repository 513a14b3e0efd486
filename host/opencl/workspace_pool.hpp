// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/opencl.hpp>
#include <cstdint>
#include <memory>

namespace tessera::opencl {

/// Device buffers kept between calls. A block in use belongs to one call; the smallest free block
/// that is large enough (and at most twice as large as asked for) is reused. Thread-safe.
class WorkspacePool {
 public:
  explicit WorkspacePool(const cl::Context& context);
  ~WorkspacePool();

  class Lease {
   public:
    Lease() = default;
    Lease(Lease&&) noexcept;
    Lease& operator=(Lease&&) noexcept;
    ~Lease();
    const cl::Buffer& buffer() const noexcept { return buffer_; }
    std::int64_t bytes() const noexcept { return bytes_; }
    /// The pool's when the block was lent. While it stays the same no block has been freed, so that
    /// a handle known from before is still that of the same buffer.
    std::int64_t epoch() const noexcept { return epoch_; }

   private:
    friend class WorkspacePool;
    WorkspacePool* pool_ = nullptr;
    cl::Buffer buffer_;
    std::int64_t bytes_ = 0;
    std::int64_t epoch_ = 0;
  };

  Lease acquire(std::int64_t bytes);    ///< throws Error out_of_memory after freeing what is unused
  void trim();                          ///< frees blocks that no call uses
  std::int64_t bytes() const noexcept;  ///< held, in use or not
  std::int64_t allocations() const noexcept;  ///< buffers ever made (a steady call makes none)

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::opencl
