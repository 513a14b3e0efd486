// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/workspace_pool.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include "host/opencl/errors.hpp"

namespace tessera::opencl {

struct WorkspacePool::Impl {
  struct Block {  // owned; plain, so that taking one out of the list moves bytes only
    cl_mem memory;
    std::int64_t bytes;
  };

  cl::Context context;
  std::string device;
  mutable std::mutex mutex;
  std::vector<Block> free;
  std::int64_t bytes = 0;
  std::int64_t allocations = 0;
  std::int64_t epoch = 1;  // grows whenever a block is freed

  /// The free block that fits best, taken out; an empty buffer when none does.
  Block take(std::int64_t wanted) {
    std::size_t best = free.size();
    for (std::size_t i = 0; i < free.size(); ++i) {
      // Not more than twice the size: a small call must not occupy the block of a large one.
      if (free[i].bytes < wanted || free[i].bytes / 2 > wanted) continue;
      if (best == free.size() || free[i].bytes < free[best].bytes) best = i;
    }
    if (best == free.size()) return {nullptr, 0};
    const Block block = free[best];
    // In order, so that calls that are alike get the same blocks for the same regions.
    free.erase(free.begin() + static_cast<std::ptrdiff_t>(best));
    return block;
  }

  /// Frees the block that a slightly larger one is about to replace. Without it, calls that grow
  /// little by little would leave one block behind for every size.
  void drop_outgrown(std::int64_t wanted) {
    for (auto it = free.begin(); it != free.end(); ++it) {
      if (it->bytes < wanted && it->bytes >= wanted / 2) {
        bytes -= it->bytes;
        clReleaseMemObject(it->memory);
        ++epoch;
        free.erase(it);
        return;
      }
    }
  }

  void drop_all() {
    for (const auto& block : free) {
      bytes -= block.bytes;
      clReleaseMemObject(block.memory);
    }
    ++epoch;
    free.clear();
  }

  cl_mem create(std::int64_t wanted, cl_int& status) {
    return clCreateBuffer(context(), CL_MEM_READ_WRITE, static_cast<std::size_t>(wanted), nullptr,
                          &status);
  }
};

WorkspacePool::WorkspacePool(const cl::Context& context) : impl_(std::make_unique<Impl>()) {
  impl_->context = context;
  cl_device_id device = nullptr;
  char name[256] = "";
  // Only for messages; a context of several devices names its first.
  if (clGetContextInfo(context(), CL_CONTEXT_DEVICES, sizeof(device), &device, nullptr) ==
      CL_SUCCESS) {
    if (clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof(name), name, nullptr) == CL_SUCCESS) {
      impl_->device = name;
    }
  }
}

WorkspacePool::~WorkspacePool() { impl_->drop_all(); }

WorkspacePool::Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      buffer_(std::move(other.buffer_)),
      bytes_(std::exchange(other.bytes_, 0)),
      epoch_(other.epoch_) {}

WorkspacePool::Lease& WorkspacePool::Lease::operator=(Lease&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(buffer_, other.buffer_);
  std::swap(bytes_, other.bytes_);
  std::swap(epoch_, other.epoch_);
  return *this;
}

WorkspacePool::Lease::~Lease() {
  if (pool_ == nullptr) return;
  auto& impl = *pool_->impl_;
  std::lock_guard lock(impl.mutex);
  try {
    impl.free.push_back({buffer_(), bytes_});
    buffer_() = nullptr;  // the list has it now
  } catch (...) {
    impl.bytes -= bytes_;  // no room to remember the block: it is freed with the lease
    ++impl.epoch;
  }
}

WorkspacePool::Lease WorkspacePool::acquire(std::int64_t bytes) {
  Lease lease;
  std::lock_guard lock(impl_->mutex);
  if (const auto block = impl_->take(bytes); block.memory != nullptr) {
    lease.buffer_ = cl::Buffer(block.memory, false);
    lease.bytes_ = block.bytes;
    lease.epoch_ = impl_->epoch;
    lease.pool_ = this;
    return lease;
  }
  impl_->drop_outgrown(bytes);
  cl_int status = CL_SUCCESS;
  cl_mem memory = impl_->create(bytes, status);
  if (status != CL_SUCCESS && !impl_->free.empty()) {
    impl_->drop_all();
    memory = impl_->create(bytes, status);
  }
  if (status != CL_SUCCESS) {
    // Whatever the code, what failed is an allocation.
    throw Error(ErrorCode::out_of_memory,
                "clCreateBuffer failed with " + code_name(status) + " for " +
                    std::to_string(bytes) + " bytes of scratch on " + impl_->device + " (" +
                    std::to_string(impl_->bytes) +
                    " bytes are in use by other calls); lower workspace_bytes or pass fewer rows "
                    "per call");
  }
  lease.buffer_ = cl::Buffer(memory, false);
  lease.bytes_ = bytes;
  lease.epoch_ = impl_->epoch;
  lease.pool_ = this;
  impl_->bytes += bytes;
  ++impl_->allocations;
  return lease;
}

void WorkspacePool::trim() {
  std::lock_guard lock(impl_->mutex);
  impl_->drop_all();
}

std::int64_t WorkspacePool::bytes() const noexcept {
  std::lock_guard lock(impl_->mutex);
  return impl_->bytes;
}

std::int64_t WorkspacePool::allocations() const noexcept {
  std::lock_guard lock(impl_->mutex);
  return impl_->allocations;
}

}  // namespace tessera::opencl
