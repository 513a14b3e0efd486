// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/tile/block_spec.hpp"

namespace tessera::tile {

/// What the author promises of a grid dimension: steps in any order, also on several cores, or not.
enum class Semantics { parallel, arbitrary };

/// The part of a grid that one core walks.
struct CoreGrid {
  Shape extents{};  ///< may hold a 0: nothing to do
  Shape offsets{};  ///< added to the core's indices
  friend bool operator==(const CoreGrid&, const CoreGrid&) = default;
};

/// Rule R12 for dimension semantics: as many as grid dimensions (or none: all arbitrary), parallel
/// ones first, grid extents positive. emit_pipeline and JAX's lowering take parallel dimensions
/// anywhere; only `call` asks for the prefix.
TESSERA_API std::vector<Violation> check_semantics(const std::string& kernel, const Shape& grid,
                                                   const std::vector<Semantics>& semantics,
                                                   Issuer issuer = Issuer::call);

/// The share of `core` of `cores`. One core takes all. Else the first parallel dimension that
/// `cores` divides is split evenly; if there is none, the largest parallel dimension, its remainder
/// going to the first cores. Throws TileError (R12) when no dimension is parallel or the counts
/// differ.
TESSERA_API CoreGrid partition_grid(const Shape& grid, const std::vector<Semantics>& semantics,
                                    int cores, int core);

/// Number of grid steps; an empty grid has one.
TESSERA_API std::int64_t steps_of(const Shape& grid);

/// Grid indices of a step: lexicographic, last dimension fastest.
TESSERA_API Shape grid_point(const Shape& grid, std::int64_t step);

/// What a pipeline's DMA moves in one dimension. Elements from `size` on in an edge block's window
/// are not written by it.
struct DmaSlice {
  std::int64_t start = 0;  ///< first element of the array
  std::int64_t size = 0;   ///< elements moved, whole tiles; may reach into the array's padding
  std::int64_t valid = 0;  ///< elements of these that are in the array
  std::int64_t window_start = 0;  ///< where they land in the window; not 0 only in low padding
  friend bool operator==(const DmaSlice&, const DmaSlice&) = default;
};

/// The DMA of the block at `index`, per dimension (JAX's get_dma_slice, 0.11.1): a blocked or
/// element dimension that overhangs is cut to the next multiple of the tile, a bounded slice is
/// always rounded up to it. `index` holds what the index map gives: the block's number, or the
/// first element; only bounded slices read its `size`. Throws TileError (R12, bounds) for a block
/// without one element in the array, (R5, block_rule) where the block must be cut but is no
/// multiple of the tile.
TESSERA_API std::vector<DmaSlice> dma_slice(const Chip& chip, const std::string& buffer,
                                            const Shape& array, ElementType type,
                                            const BlockDims& block,
                                            const std::vector<Slice>& index);

}  // namespace tessera::tile
