// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "host/arguments/bytes.hpp"
#include "host/linear_cross_entropy/tile/kernel.hpp"
#include "tuning/lookup/lookup.hpp"

namespace tessera::linear_cross_entropy::tpu_tile {
namespace {

using arguments::saturating_product;
using arguments::saturating_sum;
using tile::Allocation;
using tile::ElementType;

std::int64_t bytes_of(ElementType type) { return tile::bits_of(type) / 8; }

/// Divisors of `extent` that are multiples of `unit`, at most `most`, largest first. An extent of 0
/// is one block of any size.
std::vector<std::int64_t> divisors(std::int64_t extent, std::int64_t unit, std::int64_t most) {
  if (extent == 0) return {unit};
  std::vector<std::int64_t> found;
  for (std::int64_t size = std::min(extent, most) / unit * unit; size > 0; size -= unit) {
    if (extent % size == 0) found.push_back(size);
  }
  return found;
}

std::vector<Pass> kernels_of(Pass pass) {
  if (pass == Pass::value_and_grad) return {Pass::forward, Pass::backward};
  return {pass == Pass::backward ? Pass::backward : Pass::forward};
}

bool legal(const tile::Chip& chip, Pass pass, const Kernel& kernel, const Operands& operands) {
  const auto passes = kernels_of(pass);
  return std::ranges::all_of(passes,
                             [&](Pass one) { return check(chip, one, kernel, operands).empty(); });
}

/// HBM bytes of the kernel of `pass`: a block of x for every block of columns, of w for every block
/// of rows, and in backward those of the gradients read and written.
double traffic(const tile::Chip& chip, Pass pass, const Kernel& k, const Operands& o) {
  const auto rows = static_cast<double>(k.row_blocks());
  const auto columns = static_cast<double>(k.column_blocks());
  const double x = static_cast<double>(k.b) * static_cast<double>(k.h);
  const double w = static_cast<double>(k.h) * static_cast<double>(k.padded_v());
  const double read = x * columns * static_cast<double>(bytes_of(o.x_type)) +
                      w * rows * static_cast<double>(bytes_of(o.w_type));
  if (pass == Pass::forward) return read;
  // Both stages read the operands, but for a contraction in one block.
  const double again = k.depth_blocks() > 1 ? 2.0 : 1.0;
  const auto shares = static_cast<double>(splits(chip, k));
  return again * read + (o.grad_x ? 4.0 * x * (2.0 * columns - shares) : 0.0) +
         (o.grad_w ? 4.0 * w * (2.0 * rows - 1.0) : 0.0);
}

double traffic_of_all(const tile::Chip& chip, Pass pass, const Kernel& k, const Operands& o) {
  double sum = 0;
  for (const Pass one : kernels_of(pass)) sum += traffic(chip, one, k, o);
  return sum;
}

/// What the tables have for the kernel's shape; nothing: no row, or one that is not legal.
std::optional<std::pair<BlockSizes, BlockSource>> tuned_blocks(const tile::Chip& chip, Pass pass,
                                                               Kernel kernel,
                                                               const Operands& operands) {
  tuning::Key key{.operation = "linear_cross_entropy",
                  .implementation = "tpu_tile",
                  .device = chip.name,
                  .device_class = "tpu",
                  .pass = to_string(pass),
                  .dtype = to_string(operands.x_type),
                  .layout = kernel.w_is_vh ? "vh" : "hv",
                  .gradients = pass == Pass::forward ? "" : "grad_x+grad_w",
                  .workspace = "default",
                  .extents = {{'B', kernel.b}, {'H', kernel.h}, {'V', kernel.v}}};
  if (operands.w_type != operands.x_type)
    key.dtype += std::string(":") + to_string(operands.w_type);
  const auto answer = tuning::decide(key);
  if (!answer || answer->block_sizes.empty() || !answer->knobs.empty()) return std::nullopt;
  kernel.blocks = BlockSizes::get_default();
  from_named(answer->block_sizes, kernel.blocks);
  std::string changes;
  kernel.blocks = fitted(chip, kernel.blocks, kernel, changes);
  if (!legal(chip, pass, kernel, operands)) return std::nullopt;
  return std::pair{kernel.blocks, answer->source};
}

/// Those that move the fewest bytes among the legal ones that leave room for the compiler's
/// temporaries.
std::optional<BlockSizes> by_traffic(const tile::Chip& chip, Pass pass, Kernel kernel,
                                     const Operands& operands) {
  // Beyond these nothing published goes, and the search stays short.
  constexpr std::int64_t most_rows = 8192, most_depth = 2048;
  constexpr std::int64_t widths[] = {4096, 3072, 2048, 1536, 1024, 768, 512, 384, 256, 128};
  const std::int64_t rows = smallest_blocks(chip, kernel.b).b_block_size;
  const std::int64_t padded_v = (kernel.v - 1) / lanes * lanes + lanes;
  std::optional<BlockSizes> best;
  double least = std::numeric_limits<double>::infinity();
  for (const std::int64_t b : divisors(kernel.b, rows, most_rows)) {
    for (const std::int64_t h : divisors(kernel.h, lanes, most_depth)) {
      for (const std::int64_t v : widths) {
        if (v > padded_v) continue;
        kernel.blocks = {b, h, v};
        // The cheap question first: most candidates end here.
        const double bytes = traffic_of_all(chip, pass, kernel, operands);
        if (bytes >= least) continue;
        const bool roomy = std::ranges::all_of(kernels_of(pass), [&](Pass one) {
          return vmem_with_temporaries(kernel.blocks, one, operands.x_type, operands.w_type) <=
                 chip.vmem_bytes;
        });
        if (!roomy || !legal(chip, pass, kernel, operands)) continue;
        least = bytes;
        best = kernel.blocks;
      }
    }
  }
  return best;
}

}  // namespace

BlockSizes fitted(const tile::Chip& chip, const BlockSizes& wanted, const Kernel& kernel,
                  std::string& changes) {
  BlockSizes blocks = wanted;
  const auto fit = [&](const char* name, std::int64_t& block, const char* extent_name,
                       std::int64_t extent, std::int64_t unit) {
    const auto sizes = divisors(extent, unit, block);
    if (sizes.empty() || sizes.front() == block) return;
    changes += fmt::format("; {} {} is {}, which divides {} {}", name, block, sizes.front(),
                           extent_name, extent);
    block = sizes.front();
  };
  fit("b_block_size", blocks.b_block_size, "B", kernel.b,
      smallest_blocks(chip, kernel.b).b_block_size);
  fit("h_block_size", blocks.h_block_size, "H", kernel.h, lanes);
  return blocks;
}

BlockSizes smallest_blocks(const tile::Chip& chip, std::int64_t b) {
  const bool by_labels = chip.labels_in_tiles_of_1024 && b >= label_tile;
  return {by_labels ? label_tile : lanes, lanes, lanes};
}

std::vector<Allocation> allocations(Pass pass, const Kernel& k, const Operands& o) {
  using enum ElementType;
  const std::int64_t b = k.blocks.b_block_size, h = k.blocks.h_block_size,
                     v = k.blocks.v_block_size;
  const bool backward = pass == Pass::backward;
  const auto transposed = [&](bool is_vh) { return is_vh ? tile::Shape{v, h} : tile::Shape{h, v}; };
  std::vector<Allocation> all = {{"x", {b, h}, o.x_type, 2},
                                 {"w", transposed(k.w_is_vh), o.w_type, 2},
                                 {"logits", {b, v}, f32, 1},
                                 {"columns", {1, v}, i32, 1},
                                 {"labels", {b}, i32, 2}};
  const auto add = [&](bool given, const char* name, tile::Shape shape, ElementType type,
                       int buffers) {
    if (given) all.push_back({name, std::move(shape), type, buffers});
  };
  add(o.bias, "bias", {1, v}, f32, 2);
  add(o.class_weight && (backward ? o.smooth : o.class_terms), "class_weight", {1, v}, f32, 2);
  if (backward) {
    for (const char* name : {"max", "gain", "hit"}) add(true, name, {b}, f32, 2);
    add(o.smooth, "smooth", {b}, f32, 2);
    add(o.grad_x, "grad_x block", {b, h}, f32, 1);
    add(o.grad_w, "grad_w block", transposed(k.grad_w_is_vh), f32, 1);
    add(o.grad_bias, "grad_bias", {1, v}, f32, 2);
    return all;
  }
  for (const char* name : {"max", "sum", "label_logit"}) add(true, name, {b}, f32, 2);
  add(o.class_terms, "class_logit", {b}, f32, 2);
  add(o.entropy, "exp_logit", {b}, f32, 2);
  add(o.argmax, "argmax", {b}, i32, 2);
  for (const char* name : {"partial", "next max"}) add(true, name, {b}, f32, 1);
  add(true, "argmax of the block", {b}, i32, 1);
  add(true, "classes", {1}, f32, 1);
  return all;
}

std::vector<tile::Violation> check(const tile::Chip& chip, Pass pass, const Kernel& kernel,
                                   const Operands& o) {
  // f32 blocks are multiplied with the operands, so f32 counts on both sides.
  const auto multiplies = [&](ElementType lhs, ElementType rhs) {
    return tile::is_matmul_supported(chip, lhs, rhs);
  };
  if (!multiplies(o.x_type, o.w_type) || !multiplies(ElementType::f32, o.w_type)) {
    return {{"MXU", tile::ErrorKind::usage, "",
             "MXU: " + chip.name + " does not multiply " + to_string(o.x_type) + " by " +
                 to_string(o.w_type) +
                 " without a cast; give x and w as f32, or as bf16 where the chip takes it"}};
  }
  const ProblemShape shape{kernel.b, kernel.h, kernel.v, o.x_type, o.w_type};
  auto violations = check_blocks(chip, kernel.blocks, shape, pass);
  if (!violations.empty() || kernel.b == 0) return violations;
  violations = tile::check_block(chip, "labels", {kernel.b}, ElementType::i32,
                                 {.dims = tile::BlockDims{kernel.blocks.b_block_size}});
  if (!violations.empty()) return violations;
  return tile::check_vmem(tile::vmem_use(chip, allocations(pass, kernel, o)));
}

std::optional<std::pair<BlockSizes, BlockSource>> choose_blocks(const tile::Chip& chip, Pass pass,
                                                                const Kernel& kernel,
                                                                const Operands& operands) {
  if (const auto tuned = tuned_blocks(chip, pass, kernel, operands)) return tuned;
  return own_blocks(chip, pass, kernel, operands);
}

std::optional<std::pair<BlockSizes, BlockSource>> own_blocks(const tile::Chip& chip, Pass pass,
                                                             const Kernel& kernel,
                                                             const Operands& operands) {
  if (const auto blocks = by_traffic(chip, pass, kernel, operands)) {
    return std::pair{*blocks, BlockSource::heuristic};
  }
  Kernel least = kernel;
  least.blocks = smallest_blocks(chip, kernel.b);
  if (!legal(chip, pass, least, operands)) return std::nullopt;
  return std::pair{least.blocks, BlockSource::fallback};
}

}  // namespace tessera::linear_cross_entropy::tpu_tile
