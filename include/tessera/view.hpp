// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/dtype.hpp"
#include "tessera/error.hpp"

// The C handle alone, declared as CL/cl.h declares it, so that this header needs no OpenCL.
extern "C" {
typedef struct _cl_mem* cl_mem;
}

namespace tessera {

/// Extents or strides of a view: up to eight integers, stored in place.
class Dims {
 public:
  static constexpr int max_rank = 8;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values)
      : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}
  Dims(const std::vector<std::int64_t>& values) : Dims(std::span<const std::int64_t>(values)) {}
  /// Throws `Error invalid_argument` for more than eight values.
  Dims(std::span<const std::int64_t> values) {
    if (values.size() > static_cast<std::size_t>(max_rank)) {
      throw Error(ErrorCode::invalid_argument,
                  "a view has " + std::to_string(values.size()) +
                      " axes, the limit is 8; merge leading axes that are contiguous");
    }
    for (auto value : values) values_[static_cast<std::size_t>(rank_++)] = value;
  }

  int rank() const noexcept { return rank_; }
  std::size_t size() const noexcept { return static_cast<std::size_t>(rank_); }
  bool empty() const noexcept { return rank_ == 0; }
  std::int64_t operator[](int axis) const noexcept {
    return values_[static_cast<std::size_t>(axis)];
  }
  std::int64_t& operator[](int axis) noexcept { return values_[static_cast<std::size_t>(axis)]; }
  std::int64_t back() const noexcept { return (*this)[rank_ - 1]; }
  const std::int64_t* begin() const noexcept { return values_.data(); }
  const std::int64_t* end() const noexcept { return values_.data() + rank_; }
  void push_back(std::int64_t value) {
    if (rank_ == max_rank) throw Error(ErrorCode::invalid_argument, "a view has at most 8 axes");
    values_[static_cast<std::size_t>(rank_++)] = value;
  }
  /// The first `count` values.
  Dims first(int count) const {
    return Dims(std::span<const std::int64_t>(begin(), static_cast<std::size_t>(count)));
  }
  /// The product of all values; 1 for rank 0. Wraps beyond 2^63 (calls refuse such extents).
  std::int64_t product() const noexcept {
    std::uint64_t p = 1;
    for (auto value : *this) p *= static_cast<std::uint64_t>(value);
    return static_cast<std::int64_t>(p);
  }
  friend bool operator==(const Dims& a, const Dims& b) noexcept {
    return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  std::array<std::int64_t, max_rank> values_{};
  int rank_ = 0;
};

/// Strides, in elements, of a dense row-major array of these extents.
inline Dims contiguous_strides(const Dims& extents) {
  Dims strides = extents;
  std::uint64_t step = 1;  // unsigned: absurd extents wrap here and are refused by the call
  for (int axis = extents.rank() - 1; axis >= 0; --axis) {
    strides[axis] = static_cast<std::int64_t>(step);
    step *= static_cast<std::uint64_t>(extents[axis]);
  }
  return strides;
}

/// A read-only array that somebody else owns: type, extents, strides (in elements) and memory,
/// which is either host memory or a `cl_mem` with a byte offset. A default View means "not given".
///
/// Strides may be any non-negative values (0 repeats an element). Alignment: the element's. The
/// memory must outlive the call, or the Completion where one is returned.
class View {
 public:
  View() = default;

  /// Host memory. Without strides the array is dense and row-major.
  template <class T>
  static View host(const T* data, const Dims& extents, const Dims& strides = {}) {
    return host(data, dtype_of<std::remove_cv_t<T>>::value, extents, strides);
  }
  static View host(const void* data, DType type, const Dims& extents, const Dims& strides = {}) {
    return View(const_cast<void*>(data), nullptr, 0, type, extents, strides);
  }

  /// Device memory: element 0 lies `byte_offset` bytes into `memory`.
  static View device(cl_mem memory, std::int64_t byte_offset, DType type, const Dims& extents,
                     const Dims& strides = {}) {
    return View(nullptr, memory, byte_offset, type, extents, strides);
  }

  /// A contiguous host range, as a view of rank 1.
  template <class T, std::size_t N>
  View(std::span<T, N> range)
      : View(host(range.data(), {static_cast<std::int64_t>(range.size())})) {}
  template <class T>
  View(const std::vector<T>& range) : View(std::span<const T>(range)) {}
  /// The view of a temporary would outlive its elements.
  template <class T>
  View(const std::vector<T>&& range) = delete;

  /// True when a view was given (even one without elements).
  explicit operator bool() const noexcept { return given_; }

  DType dtype() const noexcept { return type_; }
  int rank() const noexcept { return extents_.rank(); }
  const Dims& extents() const noexcept { return extents_; }
  const Dims& strides() const noexcept { return strides_; }
  std::int64_t size() const noexcept { return given_ ? extents_.product() : 0; }
  bool is_device() const noexcept { return memory_ != nullptr; }
  /// Element 0 in host memory; nullptr for device memory.
  const void* host_data() const noexcept { return data_; }
  cl_mem device_memory() const noexcept { return memory_; }
  std::int64_t byte_offset() const noexcept { return byte_offset_; }

  /// The same memory seen with other extents and strides.
  View reshaped(const Dims& extents, const Dims& strides) const {
    View result = *this;
    result.extents_ = extents;
    result.strides_ = strides;
    return result;
  }
  /// The same memory seen with its two axes exchanged. Calls take w as [H, V]; of one that lies as
  /// [V, H], as PyTorch stores it, this is that view (Python: `w_layout="vh"`). Throws `Error
  /// invalid_argument` unless the rank is 2.
  View transposed() const {
    if (rank() != 2) {
      throw Error(ErrorCode::invalid_argument,
                  "transposed() exchanges two axes, this view has " + std::to_string(rank()));
    }
    return reshaped({extents_[1], extents_[0]}, {strides_[1], strides_[0]});
  }

 protected:
  View(void* data, cl_mem memory, std::int64_t byte_offset, DType type, const Dims& extents,
       const Dims& strides)
      : data_(data),
        memory_(memory),
        byte_offset_(byte_offset),
        type_(type),
        given_(true),
        extents_(extents),
        strides_(strides.empty() ? contiguous_strides(extents) : strides) {
    if (strides_.rank() != extents_.rank()) {
      throw Error(ErrorCode::invalid_argument,
                  "a view has " + std::to_string(extents_.rank()) + " extents but " +
                      std::to_string(strides_.rank()) + " strides; give one stride per axis");
    }
  }

  void* data_ = nullptr;
  cl_mem memory_ = nullptr;
  std::int64_t byte_offset_ = 0;
  DType type_ = DType::f32;
  bool given_ = false;
  Dims extents_;
  Dims strides_;
};

/// A View that may be written through.
class MutableView : public View {
 public:
  MutableView() = default;

  template <class T>
  static MutableView host(T* data, const Dims& extents, const Dims& strides = {}) {
    static_assert(!std::is_const_v<T>, "a MutableView needs writable memory");
    return host(data, dtype_of<T>::value, extents, strides);
  }
  static MutableView host(void* data, DType type, const Dims& extents, const Dims& strides = {}) {
    return MutableView(View::host(data, type, extents, strides));
  }
  static MutableView device(cl_mem memory, std::int64_t byte_offset, DType type,
                            const Dims& extents, const Dims& strides = {}) {
    return MutableView(View::device(memory, byte_offset, type, extents, strides));
  }

  template <class T, std::size_t N>
  MutableView(std::span<T, N> range)
      : MutableView(host(range.data(), {static_cast<std::int64_t>(range.size())})) {}
  template <class T>
  MutableView(std::vector<T>& range) : MutableView(std::span<T>(range)) {}

  void* host_data() const noexcept { return data_; }

  MutableView reshaped(const Dims& extents, const Dims& strides) const {
    return MutableView(View::reshaped(extents, strides));
  }
  MutableView transposed() const { return MutableView(View::transposed()); }

 private:
  explicit MutableView(const View& view) : View(view) {}
};

/// Asks the system for large pages under memory that nothing has touched yet: an array of hundreds
/// of megabytes then takes less time to fill for the first time, and kernels that write many rows
/// at once look up fewer pages. Without effect on less than 4 MiB, and where the system has no
/// large pages. Memory of HostTensor has had this.
TESSERA_API void use_large_pages(void* memory, std::size_t bytes) noexcept;

/// An array in host memory that owns its elements, without gaps; what calls without output views
/// return. Row-major, except that the gradient of a transposed weight is stored as the weight is,
/// and attention's y as q where q has tokens before heads.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType type, const Dims& extents)
      : HostTensor(type, extents, contiguous_strides(extents)) {}
  /// Zeros. `strides` are those of a dense array whose axes may be in any order, e.g. {1, H} for
  /// [H, V]. Throws `Error invalid_argument` for a negative extent or more bytes than 64 bits
  /// count, and `Error out_of_memory`.
  HostTensor(DType type, const Dims& extents, const Dims& strides)
      : HostTensor(empty(type, extents, strides)) {
    std::ranges::fill(storage_, Line());
  }
  /// The same with elements that nobody has written yet.
  static HostTensor empty(DType type, const Dims& extents, const Dims& strides) {
    HostTensor tensor;
    tensor.type_ = type;
    tensor.extents_ = extents;
    tensor.strides_ = strides;
    tensor.given_ = true;
    tensor.storage_ = storage_of(type, extents);
    return tensor;
  }

  /// False for an output that was not asked for.
  explicit operator bool() const noexcept { return given_; }
  DType dtype() const noexcept { return type_; }
  const Dims& extents() const noexcept { return extents_; }
  const Dims& strides() const noexcept { return strides_; }
  std::int64_t size() const noexcept { return given_ ? extents_.product() : 0; }
  void* data() noexcept { return storage_.data(); }
  const void* data() const noexcept { return storage_.data(); }

  /// The elements as T, in the order of memory; throws `Error invalid_argument` when T is not the
  /// element type.
  template <class T>
  std::span<const T> as() const {
    check(dtype_of<T>::value);
    return {reinterpret_cast<const T*>(storage_.data()), static_cast<std::size_t>(size())};
  }
  template <class T>
  std::span<T> as() {
    check(dtype_of<T>::value);
    return {reinterpret_cast<T*>(storage_.data()), static_cast<std::size_t>(size())};
  }
  /// The single element of an f32 tensor of size 1, e.g. a mean loss.
  float item() const {
    if (size() != 1) {
      throw Error(ErrorCode::invalid_argument,
                  "item() needs one element, this tensor has " + std::to_string(size()));
    }
    return as<float>()[0];
  }

  View view() const& {
    return given_ ? View::host(storage_.data(), type_, extents_, strides_) : View();
  }
  MutableView mutable_view() & {
    return given_ ? MutableView::host(storage_.data(), type_, extents_, strides_) : MutableView();
  }
  /// The view of a temporary would outlive its elements.
  View view() const&& = delete;
  MutableView mutable_view() && = delete;

 private:
  /// Elements begin at a cache line: vectors then meet no two of them, and kernels may write whole
  /// lines past the caches.
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  /// From a cache line on, in large pages. Throws std::bad_alloc.
  TESSERA_API static void* allocate(std::size_t bytes);
  TESSERA_API static void deallocate(void* memory) noexcept;
  /// Leaves elements as they are, where std::allocator writes zeros.
  template <class T>
  struct Allocator {
    using value_type = T;
    T* allocate(std::size_t n) { return static_cast<T*>(HostTensor::allocate(n * sizeof(T))); }
    void deallocate(T* memory, std::size_t) noexcept { HostTensor::deallocate(memory); }
    void construct(T*) const noexcept {}
    void construct(T* at, const T& value) const noexcept { new (at) T(value); }
    bool operator==(const Allocator&) const = default;
  };
  using Storage = std::vector<Line, Allocator<Line>>;

  static Storage storage_of(DType type, const Dims& extents) {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() - 7;
    std::int64_t bytes = static_cast<std::int64_t>(size_of(type));
    bool fits = true;
    std::string text;
    for (const std::int64_t extent : extents) {
      text += (text.empty() ? "" : ", ") + std::to_string(extent);
      fits = fits && extent >= 0 && (extent == 0 || bytes <= most / extent);
      // Of an array without elements, the other extents have to make sense all the same.
      if (fits && extent > 0) bytes *= extent;
    }
    if (!fits) {
      throw Error(ErrorCode::invalid_argument,
                  "an array of [" + text +
                      "] has a negative extent, or more bytes than 64 bits "
                      "count; correct the extents");
    }
    if (extents.product() == 0) return {};
    try {
      constexpr auto line = static_cast<std::int64_t>(sizeof(Line));
      return Storage(static_cast<std::size_t>((bytes - 1) / line + 1));
    } catch (const std::exception&) {  // bad_alloc or length_error
      throw Error(ErrorCode::out_of_memory, "the host has no " + std::to_string(bytes) +
                                                " bytes for an array of [" + text + "]");
    }
  }

  void check(DType wanted) const {
    if (wanted != type_) {
      throw Error(ErrorCode::invalid_argument, std::string("this tensor holds ") +
                                                   to_string(type_) + ", not " + to_string(wanted));
    }
  }

  DType type_ = DType::f32;
  Dims extents_;
  Dims strides_;
  bool given_ = false;
  Storage storage_;
};

}  // namespace tessera
