// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/tile/text.hpp"
#include "tessera/tile/block_spec.hpp"

namespace tessera::tile {
namespace {

std::string describe(const BlockDim& dim) {
  const std::string n = std::to_string(dim.size);
  switch (dim.kind) {
    case DimKind::squeezed:
      return "squeezed";
    case DimKind::element:
      return "element(" + n + ")";
    case DimKind::bounded_slice:
      return "bounded_slice(" + n + ")";
    case DimKind::blocked:
      break;
  }
  return n;
}

std::string describe(const BlockDims& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i ? ", " : "") + describe(dims[i]);
  return text + "]";
}

bool is_power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

/// The checks of one operand, which share what their messages say of it.
class BlockCheck {
 public:
  BlockCheck(const Chip& chip, const std::string& buffer, const Shape& array, ElementType type,
             const BlockShape& block, Issuer issuer)
      : chip_(chip), buffer_(buffer), array_(array), type_(type), block_(block), issuer_(issuer) {
    if (block.dims) {
      dims_ = *block.dims;
    } else {
      for (std::int64_t extent : array) dims_.emplace_back(extent);
    }
  }

  std::vector<Violation> run() {
    if (block_.space == MemorySpace::semaphore) return {};
    if (!ranks_and_sizes()) return violations_;
    const bool on_chip = block_.space == MemorySpace::vmem || block_.space == MemorySpace::smem;
    const bool trivial = is_trivial_window(array_, block_, issuer_);
    if (on_chip && bits_of(type_) > 32) {
      refuse("R17", ErrorKind::layout, "a TPU's tiles hold elements of up to 32 bits");
      return violations_;
    }
    dimension_kinds();
    if (!trivial && on_chip) buffers();
    if (trivial) return violations_;
    if (issuer_ == Issuer::emit_pipeline) {
      if (bits_of(type_) <= 32) whole_tiles();
    } else if (!on_chip) {
      refuse("R4", ErrorKind::block_rule,
             std::string("in memory space ") + to_string(block_.space) +
                 " a call takes the whole array with an index map of zeros only; copy parts of it "
                 "in the body");
    } else if (array_.size() >= 2) {
      last_two();
    } else {
      vector();
    }
    return violations_;
  }

 private:
  void refuse(const char* rule, ErrorKind kind, const std::string& what) {
    violations_.push_back({rule, kind, buffer_,
                           std::string(rule) + ": block " + describe(dims_) + " of '" + buffer_ +
                               "' " + to_text(array_) + " " + tile::to_string(type_) + " on " +
                               chip_.name + ": " + what});
  }

  bool ranks_and_sizes() {
    if (dims_.size() != array_.size()) {
      refuse("R1", ErrorKind::block_rule,
             "the block has " + std::to_string(dims_.size()) + " dimensions, the array has " +
                 std::to_string(array_.size()));
    } else if (dims_.empty() && block_.space != MemorySpace::smem) {
      refuse("R1", ErrorKind::block_rule,
             "blocks have at least one dimension; only SMEM holds scalars");
    } else {
      for (std::size_t i = 0; i < dims_.size(); ++i) {
        if (dims_[i].size < 1) {
          refuse("R1", ErrorKind::block_rule,
                 "dimension " + std::to_string(i) + " of the block must be at least 1");
        }
      }
    }
    return violations_.empty();
  }

  void dimension_kinds() {
    const auto count = [&](DimKind kind) {
      return std::count_if(dims_.begin(), dims_.end(),
                           [&](const BlockDim& d) { return d.kind == kind; });
    };
    if (count(DimKind::element) > 0 &&
        count(DimKind::blocked) + count(DimKind::bounded_slice) > 0) {
      refuse("R15", ErrorKind::block_rule,
             "either every dimension that is not squeezed is an element dimension, or none");
    }
    for (const BlockDim& dim : dims_) {
      if (dim.padding_low < 0 || dim.padding_high < 0 ||
          (dim.kind != DimKind::element && (dim.padding_low || dim.padding_high))) {
        refuse("R15", ErrorKind::block_rule,
               "only element dimensions are padded, by 0 or more elements");
      }
    }
    if (issuer_ == Issuer::call && count(DimKind::bounded_slice) > 0) {
      refuse("R16", ErrorKind::block_rule, "bounded slices exist in emit_pipeline only");
    }
  }

  void buffers() {
    const std::string have = std::to_string(block_.buffer_count) + " buffers" +
                             (block_.lookahead ? " with lookahead: " : ": ");
    if (block_.buffer_count < 1) {
      refuse("R14", ErrorKind::block_rule, have + "at least 1");
    } else if (issuer_ == Issuer::call) {
      if (block_.buffer_count > 2 || block_.lookahead)
        refuse("R14", ErrorKind::block_rule,
               have + "a call takes 1 or 2 without lookahead; use emit_pipeline for more");
    } else if (block_.is_output && (block_.buffer_count > 2 || block_.lookahead)) {
      refuse("R14", ErrorKind::block_rule, have + "an output has 1 or 2 without lookahead");
    }
  }

  void last_two() {
    const std::size_t n = array_.size();
    const auto dimension = [&](std::size_t i, const char* which, int unit) {
      const std::int64_t size = dims_[i].size;
      if (size == array_[i] || size % unit == 0) return;
      refuse("R2", ErrorKind::block_rule,
             std::string("the ") + which + " dimension of the block, " + std::to_string(size) +
                 ", must be a multiple of " + std::to_string(unit) + " or the array's " +
                 std::to_string(array_[i]));
    };
    dimension(n - 1, "last", chip_.lanes);
    // JAX's lowering has 8 here for every type and chip; the sublanes of all chips of the table.
    dimension(n - 2, "second-last", chip_.sublanes);
  }

  void vector() {
    const std::int64_t size = dims_[0].size;
    const std::int64_t chunk = static_cast<std::int64_t>(chip_.sublanes) * chip_.lanes;
    const std::int64_t least = static_cast<std::int64_t>(chip_.lanes) * packing_of(type_);
    if (size == array_[0] || size % chunk == 0 || (size >= least && is_power_of_two(size))) return;
    refuse("R3", ErrorKind::block_rule,
           std::to_string(size) + " must be the array's " + std::to_string(array_[0]) +
               ", a multiple of " + std::to_string(chunk) + ", or a power of two from " +
               std::to_string(least) + " on");
  }

  void whole_tiles() {
    const Shape tile = infer_tiling(chip_, array_, type_);
    for (std::size_t i = array_.size() < 2 ? 0 : array_.size() - 2; i < array_.size(); ++i) {
      if (dims_[i].size % tile[i] == 0) continue;
      refuse("R5", ErrorKind::block_rule,
             "emit_pipeline moves whole tiles: dimension " + std::to_string(i) + " of the block, " +
                 std::to_string(dims_[i].size) + ", must be a multiple of " +
                 std::to_string(tile[i]) + " even where it is the array's");
    }
  }

  const Chip& chip_;
  const std::string& buffer_;
  const Shape& array_;
  ElementType type_;
  const BlockShape& block_;
  Issuer issuer_;
  BlockDims dims_;
  std::vector<Violation> violations_;
};

}  // namespace

const char* to_string(MemorySpace space) noexcept {
  switch (space) {
    case MemorySpace::any:
      return "any";
    case MemorySpace::hbm:
      return "hbm";
    case MemorySpace::vmem:
      return "vmem";
    case MemorySpace::smem:
      return "smem";
    case MemorySpace::semaphore:
      return "semaphore";
  }
  return "?";
}

bool is_trivial_window(const Shape& array, const BlockShape& block, Issuer issuer) {
  if (!block.dims) return true;
  if (!block.zero_index || block.dims->size() != array.size()) return false;
  for (std::size_t i = 0; i < array.size(); ++i) {
    const BlockDim& dim = (*block.dims)[i];
    if (dim.size != array[i]) return false;
    if (issuer == Issuer::emit_pipeline && dim.kind != DimKind::blocked) return false;
  }
  return true;
}

Shape ref_shape(const Shape& array, const BlockShape& block) {
  if (!block.dims) return array;
  Shape shape;
  for (const BlockDim& dim : *block.dims) {
    if (dim.kind != DimKind::squeezed) shape.push_back(dim.size);
  }
  return shape;
}

std::vector<Violation> check_block(const Chip& chip, const std::string& buffer, const Shape& array,
                                   ElementType type, const BlockShape& block, Issuer issuer) {
  return BlockCheck(chip, buffer, array, type, block, issuer).run();
}

std::vector<Violation> check_dma_slice(const Chip& chip, const std::string& buffer,
                                       const Shape& array, ElementType type,
                                       const std::vector<Slice>& slices) {
  std::vector<Violation> violations;
  const auto refuse = [&](const char* rule, ErrorKind kind, const std::string& what) {
    violations.push_back({rule, kind, buffer,
                          std::string(rule) + ": slice of '" + buffer + "' " + to_text(array) +
                              " " + to_string(type) + " on " + chip.name + ": " + what});
  };
  if (bits_of(type) > 32) {
    refuse("R17", ErrorKind::layout, "a TPU's tiles hold elements of up to 32 bits");
    return violations;
  }
  if (slices.size() != array.size() || array.empty()) {
    refuse("R1", ErrorKind::usage,
           std::to_string(slices.size()) + " slices for " + std::to_string(array.size()) +
               " dimensions, of which there must be at least one");
    return violations;
  }
  const std::size_t n = array.size();
  for (std::size_t i = 0; i < n; ++i) {
    const auto [start, size] = slices[i];
    const std::string have = "dimension " + std::to_string(i) + ", start " + std::to_string(start) +
                             " and size " + std::to_string(size);
    if (start < 0 || size < 1 || size > array[i] || start > array[i] - size) {
      refuse("R18", ErrorKind::bounds,
             have + ": must lie within the array's " + std::to_string(array[i]) + " elements");
      continue;
    }
    if (i + 2 < n || size == array[i]) continue;
    std::int64_t unit = chip.lanes;
    if (n == 1) unit = infer_tiling(chip, array, type)[0];
    // 32 bytes of one lane's column: 8 rows of f32, 16 of bf16, 32 of int8, 64 of int4.
    if (i + 2 == n) unit = static_cast<std::int64_t>(chip.sublanes) * packing_of(type);
    if (start % unit != 0 || size % unit != 0) {
      refuse("R6", ErrorKind::layout,
             have + ": both must be multiples of " + std::to_string(unit) + ", or the slice all " +
                 std::to_string(array[i]));
    }
  }
  return violations;
}

}  // namespace tessera::tile
