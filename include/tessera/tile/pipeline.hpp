// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/tile/grid.hpp"
#include "tessera/tile/kernel.hpp"

namespace tessera::tile {

/// Where a block is, dimension by dimension: its number (blocked), its first element (element), or
/// `ds(start, size)` (bounded slice). At most 8 dimensions.
class BlockIndex {
 public:
  static constexpr std::size_t max_rank = 8;

  BlockIndex() = default;
  template <class... Parts>
  requires(sizeof...(Parts) <= max_rank) explicit BlockIndex(std::in_place_t, const Parts&... parts)
      : rank_(sizeof...(Parts)), parts_{part_of(parts)...} {}

  std::size_t rank() const noexcept { return rank_; }
  const Slice& operator[](std::size_t dimension) const { return parts_.at(dimension); }
  /// Zeros.
  TESSERA_API static BlockIndex zeros(std::size_t rank);
  friend bool operator==(const BlockIndex& a, const BlockIndex& b) {
    return a.rank_ == b.rank_ && a.parts_ == b.parts_;
  }

 private:
  static Slice part_of(const Slice& part) { return part; }
  static Slice part_of(std::integral auto number) { return {static_cast<std::int64_t>(number), 0}; }

  std::size_t rank_ = 0;
  std::array<Slice, max_rank> parts_{};
};

/// `ix(i, j)`: what an index map returns, one number or `ds(start, size)` per dimension of the
/// block.
template <class... Parts>
BlockIndex ix(const Parts&... parts) {
  return BlockIndex(std::in_place, parts...);
}

/// Where a grid stands, for index maps: `g[0]` is the first index.
class GridPoint {
 public:
  GridPoint(std::span<const std::int64_t> point, std::span<const detail::Region> prefetched)
      : point_(point), prefetched_(prefetched) {}
  TESSERA_API std::int64_t operator[](std::size_t dimension) const;
  std::size_t rank() const noexcept { return point_.size(); }
  /// An element of a scalar-prefetch operand of `call`, which is in SMEM.
  template <class... Indices>
  std::int64_t prefetched(std::size_t operand, const Indices&... indices) const {
    return Ref<std::int32_t>(prefetch_operand(operand)).load(indices...);
  }

 private:
  TESSERA_API const detail::Region& prefetch_operand(std::size_t operand) const;
  std::span<const std::int64_t> point_;
  std::span<const detail::Region> prefetched_;
};

/// From a point of the grid to a block.
using IndexMap = std::function<BlockIndex(const GridPoint&)>;

/// How an array is cut into blocks, and which of them a point of the grid sees (Pallas' BlockSpec).
struct BlockSpec {
  BlockShape shape{};
  IndexMap index{};  ///< none: zeros, wherever the grid is

  /// Blocks in VMEM.
  static BlockSpec blocks(BlockDims dims, IndexMap index, int buffer_count = 2,
                          bool lookahead = false) {
    BlockSpec spec;
    spec.shape.dims = std::move(dims);
    spec.shape.buffer_count = buffer_count;
    spec.shape.lookahead = lookahead;
    spec.index = std::move(index);
    return spec;
  }
  /// The whole array on chip.
  static BlockSpec whole(MemorySpace space = MemorySpace::vmem) {
    BlockSpec spec;
    spec.shape.space = space;
    spec.shape.zero_index = true;
    return spec;
  }
  /// The whole array where it is; the body copies what it needs.
  static BlockSpec in_hbm() { return whole(MemorySpace::hbm); }
};

/// A grid and the windows of its operands.
struct PipelineSpec {
  Shape grid{};
  std::vector<BlockSpec> in{};
  std::vector<BlockSpec> out{};
  std::vector<Semantics> semantics{};  ///< none: all arbitrary
  /// emit_pipeline: the cores of the kernel share the grid (Pallas' core_axis_name).
  bool over_cores = false;
};

/// Of the innermost grid that runs on this core, in the whole grid also where cores share it: the
/// index in `dimension`, and how many there are. Throw TileError (usage) outside of a kernel or a
/// grid, (bounds) for a dimension that the grid has not.
TESSERA_API std::int64_t program_id(int dimension);
TESSERA_API std::int64_t num_programs(int dimension);

namespace detail {
/// `arrays`: inputs before outputs; `body` gets the window of each at every step.
TESSERA_API void run_pipeline(const PipelineSpec& spec, std::span<const Region> arrays,
                              std::span<const Region> prefetched, Issuer issuer,
                              const std::function<void(const std::vector<Region>&)>& body);

template <class Body, class... T, std::size_t... I>
void call_with_windows(Body& body, const std::vector<Region>& windows, std::index_sequence<I...>,
                       const Ref<T>&...) {
  body(Ref<T>(windows[I])...);
}
}  // namespace detail

/// Runs `body(windows...)` at every point of the grid, lexicographically, with the blocks that the
/// specifications name on chip: they come and go by copies of their own, as many steps ahead as
/// there are buffers, and only where the block changes; the order is that of Pallas' scheduler.
/// `refs`: inputs before outputs; a ref that is on chip is used where it is. Returns when the last
/// output has been written. Throws TileError (usage) for another number of specifications than of
/// refs, (block_rule, vmem, bounds, revisit) that names the operand and the grid point.
template <class Body, class... T>
void emit_pipeline(const PipelineSpec& spec, Body body, const Ref<T>&... refs) {
  const std::array<detail::Region, sizeof...(T)> arrays{refs.region()...};
  detail::run_pipeline(
      spec, arrays, {}, Issuer::emit_pipeline, [&](const std::vector<detail::Region>& windows) {
        detail::call_with_windows(body, windows, std::index_sequence_for<T...>{}, refs...);
      });
}

}  // namespace tessera::tile
