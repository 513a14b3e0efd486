// SPDX-License-Identifier: Apache-2.0
#include "tessera/tile/grid.hpp"

#include <algorithm>

#include "host/tile/text.hpp"

namespace tessera::tile {
namespace {

[[noreturn]] void refuse_partition(const Shape& grid, const std::string& what) {
  throw TileError(ErrorKind::block_rule, "R12: grid " + to_text(grid) + ": " + what, "R12");
}

/// One dimension of dma_slice.
DmaSlice slice_of(const Chip& chip, const std::string& buffer, const Shape& array,
                  const BlockDim& dim, const Slice& index, std::size_t i, std::int64_t tile) {
  const std::int64_t extent = array[i];
  const auto name = [&] {
    return "'" + buffer + "' " + to_text(array) + ", dimension " + std::to_string(i);
  };
  std::int64_t start = index.start;
  std::int64_t size = dim.size;
  const bool counted =
      dim.kind != DimKind::blocked || !__builtin_mul_overflow(start, dim.size, &start);
  if (dim.kind == DimKind::bounded_slice) {
    size = index.size;
    if (size < 1 || size > dim.size)
      throw TileError(ErrorKind::bounds,
                      "R16: " + name() + ": the index map gives a slice of " +
                          std::to_string(size) + " elements, allowed are 1 to " +
                          std::to_string(dim.size),
                      "R16", buffer);
  }
  std::int64_t end = 0;
  if (!counted || __builtin_sub_overflow(start, dim.padding_low, &start) ||
      __builtin_add_overflow(start, size, &end)) {
    throw TileError(ErrorKind::bounds,
                    "R12: " + name() + ": the index map gives " + std::to_string(index.start) +
                        ", beyond all blocks of " + std::to_string(dim.size) +
                        "; it must give blocks with an element in [0, " + std::to_string(extent) +
                        ")",
                    "R12", buffer);
  }
  const bool in_padding = start >= -dim.padding_low && end <= extent + dim.padding_high;
  if (start >= extent || end <= 0 || (start < 0 && !in_padding))
    throw TileError(ErrorKind::bounds,
                    "R12: " + name() + ": the block of elements " + std::to_string(start) + " to " +
                        std::to_string(end - 1) +
                        (start < 0 && end > 0 ? " begins before the array" : " is outside") +
                        "; the index map must give blocks with an element in [0, " +
                        std::to_string(extent) + ")",
                    "R12", buffer);
  DmaSlice out;
  out.window_start = std::max<std::int64_t>(0, -start);
  out.start = start + out.window_start;
  out.valid = std::min(end, extent) - out.start;
  const bool overhangs = end > extent;
  if (overhangs && dim.kind == DimKind::blocked && dim.size % tile != 0)
    throw TileError(ErrorKind::block_rule,
                    "R5: " + name() + ": a block that overhangs the array on " + chip.name +
                        " must be a multiple of the tile, " + std::to_string(tile) + ", not " +
                        std::to_string(dim.size),
                    "R5", buffer);
  // JAX 0.11.1; 0.10.2 rounds a bounded slice only where it overhangs.
  const bool rounds = overhangs || dim.kind == DimKind::bounded_slice;
  // A block's window is never left, whatever the tile.
  out.size = rounds ? std::min(align_to(out.valid, tile), dim.size - out.window_start) : out.valid;
  return out;
}

}  // namespace

std::vector<Violation> check_semantics(const std::string& kernel, const Shape& grid,
                                       const std::vector<Semantics>& semantics, Issuer issuer) {
  std::vector<Violation> violations;
  const auto refuse = [&](const std::string& what) {
    violations.push_back({"R12", ErrorKind::block_rule, "",
                          "R12: grid " + to_text(grid) + " of '" + kernel + "': " + what});
  };
  for (std::size_t i = 0; i < grid.size(); ++i) {
    if (grid[i] < 1) refuse("dimension " + std::to_string(i) + " must be at least 1");
  }
  std::int64_t steps = 1;
  for (const std::int64_t extent : grid) {
    if (extent < 1 || !__builtin_mul_overflow(steps, extent, &steps)) continue;
    refuse("more steps than 64 bits count; no grid of so many ends");
    break;
  }
  if (semantics.empty()) return violations;
  if (semantics.size() != grid.size()) {
    refuse(std::to_string(semantics.size()) + " dimension semantics for " +
           std::to_string(grid.size()) + " dimensions");
  }
  const auto first = std::find(semantics.begin(), semantics.end(), Semantics::arbitrary);
  const auto late = std::find(first, semantics.end(), Semantics::parallel);
  if (issuer == Issuer::call && late != semantics.end()) {
    refuse("parallel dimensions come first, but dimension " +
           std::to_string(late - semantics.begin()) + " follows an arbitrary one");
  }
  return violations;
}

CoreGrid partition_grid(const Shape& grid, const std::vector<Semantics>& semantics, int cores,
                        int core) {
  if (cores < 1 || core < 0 || core >= cores)
    throw TileError(ErrorKind::usage, "partition_grid: core " + std::to_string(core) + " of " +
                                          std::to_string(cores));
  CoreGrid part{grid, Shape(grid.size(), 0)};
  if (cores == 1) return part;
  const std::vector<Semantics> all =
      semantics.empty() ? std::vector<Semantics>(grid.size(), Semantics::arbitrary) : semantics;
  if (all.size() != grid.size())
    refuse_partition(grid, std::to_string(all.size()) + " dimension semantics for " +
                               std::to_string(grid.size()) + " dimensions");
  std::optional<std::size_t> split;
  for (std::size_t i = 0; i < grid.size() && !split; ++i) {
    if (all[i] == Semantics::parallel && grid[i] % cores == 0) split = i;
  }
  if (!split) {
    for (std::size_t i = 0; i < grid.size(); ++i) {
      if (all[i] == Semantics::parallel && (!split || grid[i] > grid[*split])) split = i;
    }
  }
  if (!split)
    refuse_partition(grid, "no parallel dimension to split over " + std::to_string(cores) +
                               " cores; declare one parallel");
  const std::int64_t base = grid[*split] / cores;
  const std::int64_t rest = grid[*split] % cores;
  part.extents[*split] = base + (core < rest ? 1 : 0);
  part.offsets[*split] = core * base + std::min<std::int64_t>(core, rest);
  return part;
}

std::int64_t steps_of(const Shape& grid) {
  std::int64_t steps = 1;
  for (std::int64_t extent : grid) steps *= extent;
  return steps;
}

Shape grid_point(const Shape& grid, std::int64_t step) {
  Shape point(grid.size(), 0);
  for (std::size_t i = grid.size(); i-- > 0;) {
    point[i] = step % grid[i];
    step /= grid[i];
  }
  return point;
}

std::vector<DmaSlice> dma_slice(const Chip& chip, const std::string& buffer, const Shape& array,
                                ElementType type, const BlockDims& block,
                                const std::vector<Slice>& index) {
  if (block.size() != array.size() || index.size() != array.size())
    throw TileError(ErrorKind::usage,
                    "R1: '" + buffer + "' " + to_text(array) + ": a block of " +
                        std::to_string(block.size()) + " dimensions and an index of " +
                        std::to_string(index.size()),
                    "R1", buffer);
  const Shape tile = infer_tiling(chip, array, type);
  std::vector<DmaSlice> slices;
  for (std::size_t i = 0; i < array.size(); ++i) {
    slices.push_back(slice_of(chip, buffer, array, block[i], index[i], i, tile[i]));
  }
  return slices;
}

}  // namespace tessera::tile
