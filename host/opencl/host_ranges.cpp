// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/host_ranges.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "host/opencl/errors.hpp"

namespace tessera::opencl {

struct HostRanges::Impl {
  struct Wrap {
    cl::Buffer buffer;
    int users = 0;
  };
  using Key = std::pair<const void*, std::int64_t>;

  cl::Context context;
  std::string device;
  mutable std::mutex mutex;
  std::map<Key, Wrap> wraps;
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
  const auto found = impl.wraps.find({data_, bytes_});
  if (found != impl.wraps.end() && --found->second.users == 0) impl.wraps.erase(found);
}

HostRanges::Lease HostRanges::wrap(const void* data, std::int64_t bytes, const char* argument) {
  std::lock_guard lock(impl_->mutex);
  auto found = impl_->wraps.find({data, bytes});
  if (found == impl_->wraps.end()) {
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
    cl::Buffer buffer(memory, false);
    found = impl_->wraps.emplace(Impl::Key{data, bytes}, Impl::Wrap{buffer, 0}).first;
  }
  ++found->second.users;
  Lease lease;
  lease.ranges_ = this;
  lease.data_ = data;
  lease.bytes_ = bytes;
  lease.memory_ = found->second.buffer();
  return lease;
}

std::int64_t HostRanges::live() const noexcept {
  std::lock_guard lock(impl_->mutex);
  return static_cast<std::int64_t>(impl_->wraps.size());
}

}  // namespace tessera::opencl
