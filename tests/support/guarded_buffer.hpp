// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/context.hpp"
#include "tessera/view.hpp"

/// Memory that notices when somebody writes or reads beside it.
namespace tessera::test {

/// Host memory whose last byte is followed by an inaccessible page, so that one element too far is
/// a SIGSEGV at the place where it happens, and preceded by canary bytes and another such page.
/// An OpenCL device that uses host pointers in place is caught in the same way.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::size_t bytes);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  /// Empty, or which canary byte before the data changed.
  std::string damage() const;

 private:
  std::byte* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* first_ = nullptr;  ///< first accessible byte
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Device memory with canaries on both sides of the data, which starts `beside` bytes behind a
/// multiple of 256. Throws std::runtime_error where OpenCL fails.
class DeviceBuffer {
 public:
  DeviceBuffer(Context& context, std::size_t bytes, std::size_t beside);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  cl_mem memory() const noexcept { return memory_; }
  std::int64_t offset() const noexcept { return static_cast<std::int64_t>(offset_); }
  void upload(const std::byte* from);
  /// Copies the data back; the text is empty, or says which canary changed.
  std::string download(std::byte* to);

 private:
  Context context_;
  cl_mem memory_ = nullptr;
  std::size_t offset_ = 0;
  std::size_t bytes_ = 0;
};

/// In device memory data begin at addresses that are aligned for their elements and for nothing
/// else, or at multiples of 256 bytes.
enum class Place { host, device, aligned_device };

/// The elements of one argument in guarded host or device memory, read and written as double or
/// integer through a host copy.
class Storage {
 public:
  Storage(Context& context, Place place, DType type, std::int64_t elements);

  DType type() const noexcept { return type_; }
  std::int64_t elements() const noexcept { return elements_; }
  double get(std::int64_t i) const;  ///< floating types widened, integers converted
  std::int64_t get_integer(std::int64_t i) const;
  void set(std::int64_t i, double value);  ///< rounded once to the type
  void set_integer(std::int64_t i, std::int64_t value);
  /// Fills with a pattern that no kernel computes: a NaN with a payload, or a large integer.
  void poison();
  bool is_poison(std::int64_t i) const;

  /// Makes the host copy visible to the call; remembers it for `changed`.
  void upload();
  /// Brings back what the call left; the text is empty, or says which canary changed.
  std::string download();
  /// True when an element differs, bit by bit, from what was uploaded.
  bool changed() const;
  const std::byte* bytes() const noexcept { return host_.data(); }

  View view(const Dims& extents, const Dims& strides, std::int64_t offset = 0) const;
  MutableView mutable_view(const Dims& extents, const Dims& strides, std::int64_t offset = 0) const;

 private:
  DType type_;
  std::int64_t elements_;
  GuardedBuffer host_;
  std::unique_ptr<DeviceBuffer> device_;
  std::vector<std::byte> uploaded_;
};

/// `value` rounded to the type, as a double.
double round_to(DType type, double value);

}  // namespace tessera::test
