// SPDX-License-Identifier: Apache-2.0
#include "tessera/tile/layout.hpp"

#include <algorithm>

#include "host/tile/text.hpp"
#include "tessera/tile/error.hpp"

namespace tessera::tile {
namespace {

/// Generations before 4 tile one step coarser in the compact layout.
int coarseness(const Chip& chip) { return chip.generation < 4 ? 2 : 1; }

}  // namespace

int packing_of(ElementType type) {
  const int bits = bits_of(type);
  if (bits > 32)
    throw TileError(ErrorKind::layout,
                    std::string("R17: a TPU's tiles hold elements of up to 32 bits, not ") +
                        to_string(type) + "; use a 32-bit type",
                    "R17");
  return 32 / bits;
}

int sublane_tiling(const Chip& chip, ElementType type) {
  const int packing = packing_of(type);
  // Larger tiles of 16-bit types are a flag before generation 7 and the default from there on.
  if (chip.generation < 7 && packing <= 2) return chip.sublanes;
  return chip.sublanes * packing;
}

Shape infer_tiling(const Chip& chip, const Shape& shape, ElementType type, Tiling tiling) {
  const int packing = packing_of(type);
  if (shape.empty())
    throw TileError(ErrorKind::layout, "R1: a buffer in tiles needs at least one dimension", "R1");
  Shape tile(shape.size(), 1);
  if (tiling == Tiling::sparse_core) {
    tile.back() = 8 * packing;  // JAX's Tiling.SPARSE_CORE is (8,) whatever the lanes
    return tile;
  }
  if (shape.size() == 1) {
    tile.back() = static_cast<std::int64_t>(coarseness(chip)) * packing * chip.lanes;
    return tile;
  }
  tile.back() = chip.lanes;
  const std::int64_t rows = std::min<std::int64_t>(shape[shape.size() - 2], chip.sublanes);
  std::int64_t& factor = tile[tile.size() - 2];
  factor = static_cast<std::int64_t>(coarseness(chip)) * packing;
  while (factor < rows) factor *= 2;
  return tile;
}

Shape padded_shape(const Chip& chip, const Shape& shape, ElementType type, Tiling tiling) {
  const Shape tile = infer_tiling(chip, shape, type, tiling);
  Shape padded = shape;
  for (std::size_t i = 0; i < shape.size(); ++i) padded[i] = align_to(shape[i], tile[i]);
  return padded;
}

std::int64_t padded_bytes(const Chip& chip, const Shape& shape, ElementType type, Tiling tiling) {
  // Far beyond any memory, and low enough that sums over buffers do not overflow.
  constexpr std::int64_t most = std::int64_t{1} << 58;
  std::int64_t bits = bits_of(type);
  for (std::int64_t extent : padded_shape(chip, shape, type, tiling)) {
    bits = extent > 0 && bits > most / extent ? most : bits * extent;
  }
  return bits / 8;
}

std::int64_t linear_index_with_tile(const Shape& index, const Shape& shape, const Shape& tile) {
  if (index.size() != shape.size() || tile.size() > shape.size())
    throw TileError(ErrorKind::usage, "linear_index_with_tile: index " + to_text(index) +
                                          ", shape " + to_text(shape) + " and tile " +
                                          to_text(tile) + " do not fit each other");
  const std::size_t untiled = shape.size() - tile.size();
  std::int64_t which = 0;   // the tile's number
  std::int64_t within = 0;  // the element's number in its tile
  std::int64_t volume = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (index[i] < 0 || index[i] >= shape[i])
      throw TileError(ErrorKind::bounds, "linear_index_with_tile: index " + to_text(index) +
                                             " is outside " + to_text(shape));
    const std::int64_t t = i < untiled ? 1 : tile[i - untiled];
    which = which * ((shape[i] + t - 1) / t) + index[i] / t;
    within = within * t + index[i] % t;
    volume *= t;
  }
  return which * volume + within;
}

}  // namespace tessera::tile
