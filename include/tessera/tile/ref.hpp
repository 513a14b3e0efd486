// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "tessera/tile/block_spec.hpp"

namespace tessera::tile {

/// The element type of a C++ type that refs hold: those of views, and three more.
template <class T>
struct element_of {
  static constexpr ElementType value = element_type(dtype_of<T>::value);
};
template <>
struct element_of<std::uint32_t> {
  static constexpr ElementType value = ElementType::u32;
};
template <>
struct element_of<std::int8_t> {
  static constexpr ElementType value = ElementType::i8;
};
template <>
struct element_of<std::uint8_t> {
  static constexpr ElementType value = ElementType::u8;
};

/// A whole dimension, in Ref::at.
struct All {};
inline constexpr All all{};

/// `size` elements from `start` on, in Ref::at (Pallas' pl.ds).
constexpr Slice ds(std::int64_t start, std::int64_t size) { return {start, size}; }

/// What Ref::at takes of one dimension.
class Index {
 public:
  Index(All) : kind_(Kind::whole) {}
  Index(Slice part) : kind_(Kind::slice), part_(part) {}
  /// One element: the dimension is gone from the ref.
  Index(std::integral auto element)
      : kind_(Kind::one), part_{static_cast<std::int64_t>(element), 1} {}

  bool is_all() const noexcept { return kind_ == Kind::whole; }
  bool is_one() const noexcept { return kind_ == Kind::one; }
  Slice part() const noexcept { return part_; }

 private:
  enum class Kind { whole, slice, one };
  Kind kind_;
  Slice part_{};
};

namespace detail {

struct Buffer;  // host/tile/buffer.hpp

/// Part of a buffer, whatever its type. Of use while the buffer is: for arrays the machine's life,
/// for scratch the kernel's or its run_scoped's. A region that is kept longer still names the
/// buffer, without memory, so that its use is an error that says so.
struct Region {
  std::shared_ptr<Buffer> buffer{};  ///< null: a ref that was made without a value
  std::vector<Slice> slices{};       ///< of every dimension of the buffer
  std::vector<bool> squeezed{};      ///< dimensions that the ref does not have
};

TESSERA_API Shape extents_of(const Region& region);
/// Throws TileError (bounds) that names buffer, dimension, wanted and allowed range, grid point and
/// core.
TESSERA_API Region slice_of(const Region& region, std::span<const Index> indices);
TESSERA_API const std::string& name_of(const Region& region);

enum class AccessKind { read, write };

/// Elements of a region in the host's memory; both pointers are null in a dry run.
struct Elements {
  const void* data = nullptr;
  void* target = nullptr;  ///< the same where they may be written; null: a constant view
  Shape extents{};
  Shape strides{};  ///< in elements
};

/// For an operation of the running core. Throws TileError (space) where the memory space allows no
/// access, (race) where nothing orders it after what another did, (usage) for a ref of nothing, of
/// a kernel or run_scoped that has ended, of another machine, device or core, and in a dry run for
/// integers of SMEM that it does not know.
TESSERA_API Elements access(const Region& region, AccessKind kind);

}  // namespace detail

/// Elements of a memory of the machine that a kernel may name: HBM (copies only), VMEM and SMEM.
/// Copies of a ref name the same elements. One of scratch is of use in the kernel (or run_scoped)
/// that it was given by; used later it is a TileError (usage), and so is one made without a value.
template <class T>
class Ref {
 public:
  using value_type = T;

  Ref() = default;
  explicit Ref(detail::Region region) : region_(std::move(region)) {}

  Shape extents() const { return detail::extents_of(region_); }
  std::int64_t extent(int dimension) const {
    return extents().at(static_cast<std::size_t>(dimension));
  }
  const std::string& name() const { return detail::name_of(region_); }

  /// `ref.at(ds(8, 16), all)`, `ref.at(i)`: dimensions that are not named are taken whole.
  template <class... Indices>
  Ref at(const Indices&... indices) const {
    const std::initializer_list<Index> list = {Index(indices)...};
    return Ref(detail::slice_of(region_, std::span<const Index>(list.begin(), list.size())));
  }

  /// One element of SMEM, or of VMEM (where a TPU reads vectors and this is slow). A dry run has no
  /// values in VMEM and gives T{}. It has them in SMEM, where they steer kernels; what came into
  /// SMEM from memory without values is T{} of floats and a TileError (usage) of integers.
  template <class... Indices>
  T load(const Indices&... indices) const {
    const auto elements = detail::access(at(indices...).region_, detail::AccessKind::read);
    return elements.data != nullptr ? *static_cast<const T*>(elements.data) : T{};
  }
  template <class... Indices>
  void store(T value, const Indices&... indices) const {
    const auto elements = detail::access(at(indices...).region_, detail::AccessKind::write);
    if (elements.target != nullptr) *static_cast<T*>(elements.target) = value;
  }

  const detail::Region& region() const noexcept { return region_; }

 private:
  detail::Region region_;
};

}  // namespace tessera::tile
