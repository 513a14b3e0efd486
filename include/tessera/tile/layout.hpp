// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/tile/chip.hpp"

namespace tessera::tile {

/// Extents or indices, outermost dimension first.
using Shape = std::vector<std::int64_t>;

/// How a memory is tiled: TensorCore memories in (sublanes, lanes), SparseCores' in one dimension.
enum class Tiling { compact, sparse_core };

/// Elements of this type in one 32-bit word. Throws TileError (layout, R17) for 64-bit types, which
/// no tile layout holds.
TESSERA_API int packing_of(ElementType type);

/// Rows of the tile in which XLA lays out arrays of two or more dimensions in HBM (JAX's
/// get_sublane_tiling): before generation 7 16-bit types stay at the sublane count.
TESSERA_API int sublane_tiling(const Chip& chip, ElementType type);

/// The tile of each dimension (JAX's infer_tiling): 1 for leading dimensions. A second-minor
/// dimension smaller than the sublanes gets the next power of two, at least the packing; a vector
/// gets whole rows of lanes. Throws TileError (layout) for rank 0 and 64-bit types.
TESSERA_API Shape infer_tiling(const Chip& chip, const Shape& shape, ElementType type,
                               Tiling tiling = Tiling::compact);

/// The extents that VMEM really holds: each dimension rounded up to its tile. Throws as
/// infer_tiling.
TESSERA_API Shape padded_shape(const Chip& chip, const Shape& shape, ElementType type,
                               Tiling tiling = Tiling::compact);

/// Bytes of padded_shape; more than 2^55 count as 2^55.
TESSERA_API std::int64_t padded_bytes(const Chip& chip, const Shape& shape, ElementType type,
                                      Tiling tiling = Tiling::compact);

/// XLA's address of an element, in elements: `tile` covers the last dimensions, tiles follow each
/// other row-major, and so do the elements of a tile. linear_index_with_tile({2, 3}, {3, 5}, {2,
/// 2}) is 17. Throws TileError (usage) where index, shape and tile do not fit each other,
/// (bounds) for an index outside of the shape.
TESSERA_API std::int64_t linear_index_with_tile(const Shape& index, const Shape& shape,
                                                const Shape& tile);

}  // namespace tessera::tile
