// SPDX-License-Identifier: Apache-2.0
#include "tests/support/guarded_buffer.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>

#ifdef TESSERA_OPENCL
#include <CL/cl.h>
#endif

namespace tessera::test {
namespace {

constexpr std::byte canary{0xC5};
// Wide enough for a whole vector store of the widest unit (64 bytes) at either side.
constexpr std::size_t device_canary_bytes = 256;

// Quiet NaNs with payloads that no arithmetic produces; the 64-bit pattern repeats the i32 one.
constexpr std::uint32_t poison_f32 = 0x7fc0deadu;
constexpr std::uint16_t poison_bf16 = 0x7fdeu;
constexpr std::uint16_t poison_f16 = 0x7edeu;
constexpr std::uint32_t poison_i32 = 0x5a5adeadu;

std::uint64_t poison_word(DType type) {
  switch (type) {
    case DType::f32:
      return poison_f32;
    case DType::bf16:
      return poison_bf16;
    case DType::f16:
      return poison_f16;
    case DType::i32:
      return poison_i32;
    case DType::i64:
      return (std::uint64_t{poison_i32} << 32) | poison_i32;
  }
  return 0;
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

std::string canary_text(const char* where, std::size_t distance) {
  return std::string("a byte ") + std::to_string(distance) + " bytes " + where +
         " the data was overwritten";
}

}  // namespace

GuardedBuffer::GuardedBuffer(std::size_t bytes) : bytes_(bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  // At least one byte of canary, also where the data fills its pages.
  const std::size_t inner = (bytes + page) / page * page;
  mapped_ = inner + 2 * page;
  void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(memory);
  first_ = mapping_ + page;
  data_ = first_ + (inner - bytes);
  // One page of canaries at most: large buffers stay untouched until somebody writes them.
  std::memset(first_, static_cast<int>(canary), static_cast<std::size_t>(data_ - first_));
  mprotect(mapping_, page, PROT_NONE);
  mprotect(first_ + inner, page, PROT_NONE);
}

GuardedBuffer::~GuardedBuffer() { munmap(mapping_, mapped_); }

std::string GuardedBuffer::damage() const {
  for (const std::byte* at = data_; at != first_; --at) {
    if (at[-1] != canary) return canary_text("before", static_cast<std::size_t>(data_ - at) + 1);
  }
  return {};
}

#ifdef TESSERA_OPENCL

namespace {
void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS) {
    throw std::runtime_error(std::string(what) + " failed with " + std::to_string(code));
  }
}

// Commands of other queues follow. A blocking write is not enough: Intel's CPU runtime (2026.22)
// returns from one that another of its threads has begun before the bytes are there, and they then
// fall on what those commands have written.
void write(cl_command_queue queue, cl_mem memory, std::size_t offset, std::size_t bytes,
           const std::byte* from) {
  check(clEnqueueWriteBuffer(queue, memory, CL_FALSE, offset, bytes, from, 0, nullptr, nullptr),
        "clEnqueueWriteBuffer");
  check(clFinish(queue), "clFinish");
}
}  // namespace

DeviceBuffer::DeviceBuffer(Context& context, std::size_t bytes, std::size_t beside)
    : context_(context), offset_(device_canary_bytes + beside), bytes_(bytes) {
  cl_int code = CL_SUCCESS;
  const std::size_t total = offset_ + bytes_ + device_canary_bytes;
  memory_ = clCreateBuffer(context_.native_context(), CL_MEM_READ_WRITE, total, nullptr, &code);
  check(code, "clCreateBuffer");
  const std::vector<std::byte> fill(total, canary);
  write(context_.native_queue(), memory_, 0, total, fill.data());
}

DeviceBuffer::~DeviceBuffer() { clReleaseMemObject(memory_); }

void DeviceBuffer::upload(const std::byte* from) {
  if (bytes_ == 0) return;
  write(context_.native_queue(), memory_, offset_, bytes_, from);
}

std::string DeviceBuffer::download(std::byte* to) {
  std::vector<std::byte> all(offset_ + bytes_ + device_canary_bytes);
  check(clEnqueueReadBuffer(context_.native_queue(), memory_, CL_TRUE, 0, all.size(), all.data(), 0,
                            nullptr, nullptr),
        "clEnqueueReadBuffer");
  if (bytes_ > 0) std::memcpy(to, all.data() + offset_, bytes_);
  for (std::size_t i = 0; i < offset_; ++i) {
    if (all[offset_ - 1 - i] != canary) return canary_text("before", i + 1);
  }
  for (std::size_t i = offset_ + bytes_; i < all.size(); ++i) {
    if (all[i] != canary) return canary_text("after", i - offset_ - bytes_);
  }
  return {};
}

#else

DeviceBuffer::DeviceBuffer(Context& context, std::size_t, std::size_t) : context_(context) {
  throw std::runtime_error("built without OpenCL: there is no device memory");
}
DeviceBuffer::~DeviceBuffer() = default;
void DeviceBuffer::upload(const std::byte*) {}
std::string DeviceBuffer::download(std::byte*) { return {}; }

#endif

Storage::Storage(Context& context, Place place, DType type, std::int64_t elements)
    : type_(type), elements_(elements), host_(static_cast<std::size_t>(elements) * size_of(type)) {
  if (place == Place::host) return;
  const std::size_t beside = place == Place::device ? size_of(type) : 0;
  device_ = std::make_unique<DeviceBuffer>(context, host_.bytes(), beside);
}

double Storage::get(std::int64_t i) const {
  const std::byte* at = host_.data() + static_cast<std::size_t>(i) * size_of(type_);
  switch (type_) {
    case DType::f32:
      return load<float>(at);
    case DType::bf16:
      return static_cast<float>(load<bf16>(at));
    case DType::f16:
      return static_cast<float>(load<f16>(at));
    default:
      return static_cast<double>(get_integer(i));
  }
}

std::int64_t Storage::get_integer(std::int64_t i) const {
  const std::byte* at = host_.data() + static_cast<std::size_t>(i) * size_of(type_);
  return type_ == DType::i32 ? load<std::int32_t>(at) : load<std::int64_t>(at);
}

void Storage::set(std::int64_t i, double value) {
  std::byte* at = host_.data() + static_cast<std::size_t>(i) * size_of(type_);
  const auto single = static_cast<float>(value);
  switch (type_) {
    case DType::f32:
      return store(at, single);
    case DType::bf16:
      return store(at, bf16(single));
    case DType::f16:
      return store(at, f16(single));
    default:
      return set_integer(i, static_cast<std::int64_t>(value));
  }
}

void Storage::set_integer(std::int64_t i, std::int64_t value) {
  std::byte* at = host_.data() + static_cast<std::size_t>(i) * size_of(type_);
  if (type_ == DType::i32) {
    store(at, static_cast<std::int32_t>(value));
  } else {
    store(at, value);
  }
}

void Storage::poison() {
  const std::uint64_t word = poison_word(type_);
  const std::size_t step = size_of(type_);
  for (std::int64_t i = 0; i < elements_; ++i) {
    std::memcpy(host_.data() + static_cast<std::size_t>(i) * step, &word, step);
  }
}

bool Storage::is_poison(std::int64_t i) const {
  const std::uint64_t word = poison_word(type_);
  const std::size_t step = size_of(type_);
  return std::memcmp(host_.data() + static_cast<std::size_t>(i) * step, &word, step) == 0;
}

void Storage::upload() {
  uploaded_.assign(host_.data(), host_.data() + host_.bytes());
  if (device_) device_->upload(host_.data());
}

std::string Storage::download() {
  const std::string around = device_ ? device_->download(host_.data()) : std::string();
  return around.empty() ? host_.damage() : around;
}

bool Storage::changed() const {
  // Nothing may have no address, which memcmp does not take.
  return host_.bytes() > 0 && std::memcmp(uploaded_.data(), host_.data(), host_.bytes()) != 0;
}

View Storage::view(const Dims& extents, const Dims& strides, std::int64_t offset) const {
  return mutable_view(extents, strides, offset);
}

MutableView Storage::mutable_view(const Dims& extents, const Dims& strides,
                                  std::int64_t offset) const {
  const auto skip = offset * static_cast<std::int64_t>(size_of(type_));
  if (device_) {
    return MutableView::device(device_->memory(), device_->offset() + skip, type_, extents,
                               strides);
  }
  return MutableView::host(host_.data() + skip, type_, extents, strides);
}

double round_to(DType type, double value) {
  const auto single = static_cast<float>(value);
  if (type == DType::bf16) return static_cast<float>(bf16(single));
  if (type == DType::f16) return static_cast<float>(f16(single));
  return single;
}

}  // namespace tessera::test
