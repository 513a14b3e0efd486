// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/host_ranges.hpp"

#include <mutex>
#include <utility>
#include <vector>

#include "host/opencl/errors.hpp"

namespace tessera::opencl {

struct HostRanges::Impl {
  struct Wrap {
    const void* data;
    std::int64_t bytes;
    cl::Buffer buffer;
    int users;
  };

  cl::Context context;
  std::string device;
  mutable std::mutex mutex;
  std::vector<Wrap> wraps;  // as many as calls in flight have: a handful

  Wrap* find(const void* data, std::int64_t bytes) {
    for (auto& wrap : wraps) {
      if (wrap.data == data && wrap.bytes == bytes) return &wrap;
    }
    return nullptr;
  }
};

HostRanges::HostRanges(const cl::Context& context, std::string device)
    : impl_(std::make_unique<Impl>()) {
  impl_->context = context;
  impl_->device = std::move(device);
}

HostRanges::~HostRanges() = default;

HostRanges::Lease::Lease(Lease&& other) noexcept
    : ranges_(std::exchange(other.ranges_, nullptr)),
      data_(other.data_),
      bytes_(other.bytes_),
      memory_(other.memory_) {}

HostRanges::Lease& HostRanges::Lease::operator=(Lease&& other) noexcept {
  std::swap(ranges_, other.ranges_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(memory_, other.memory_);
  return *this;
}

HostRanges::Lease::~Lease() {
  if (ranges_ == nullptr) return;
  auto& impl = *ranges_->impl_;
  std::lock_guard lock(impl.mutex);
  auto* found = impl.find(data_, bytes_);
  if (found == nullptr || --found->users > 0) return;
  if (found != &impl.wraps.back()) *found = std::move(impl.wraps.back());
  impl.wraps.pop_back();
}

HostRanges::Lease HostRanges::wrap(const void* data, std::int64_t bytes, const char* argument) {
  std::lock_guard lock(impl_->mutex);
  auto* found = impl_->find(data, bytes);
  if (found == nullptr) {
    cl_int status = CL_SUCCESS;
    // Read-write even for inputs: an output may turn out to be the same range (in place), and the
    // two must be one buffer. Kernels write only what is bound as an output.
    const cl_mem memory =
        clCreateBuffer(impl_->context(), CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                       static_cast<std::size_t>(bytes), const_cast<void*>(data), &status);
    if (status != CL_SUCCESS) {
      throw_error(status, "clCreateBuffer", impl_->device,
                  std::string("using the host memory of ") + argument + " (" +
                      std::to_string(bytes) + " bytes)");
    }
    found = &impl_->wraps.emplace_back(Impl::Wrap{data, bytes, cl::Buffer(memory, false), 0});
  }
  ++found->users;
  Lease lease;
  lease.ranges_ = this;
  lease.data_ = data;
  lease.bytes_ = bytes;
  lease.memory_ = found->buffer();
  return lease;
}

std::int64_t HostRanges::live() const noexcept {
  std::lock_guard lock(impl_->mutex);
  return static_cast<std::int64_t>(impl_->wraps.size());
}

}  // namespace tessera::opencl
