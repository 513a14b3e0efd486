// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "host/linear_cross_entropy/tile/kernel.hpp"

// The rules that blocks of the fused loss obey, whatever the arrays are.
namespace tessera::linear_cross_entropy::tpu_tile {
namespace {

using tile::Allocation;
using tile::Chip;
using tile::ElementType;
using tile::ErrorKind;
using tile::Violation;

// Marin refuses larger f32 scratch whatever the chip's limit is.
constexpr std::int64_t max_scratch_bytes = std::int64_t{64} << 20;

bool is_backward(Pass pass) {
  if (pass == Pass::forward) return false;
  if (pass == Pass::backward) return true;
  throw tile::TileError(ErrorKind::usage,
                        "pass: the loss's TPU schedules are those of forward and of backward");
}

class BlockCheck {
 public:
  void refuse(const char* rule, const std::string& what) {
    violations.push_back(
        {rule, ErrorKind::block_rule, "", std::string(rule) + ": linear_cross_entropy: " + what});
  }

  void multiple(const char* rule, const char* name, std::int64_t value, std::int64_t unit,
                const std::string& why = {}) {
    if (value > 0 && value % unit == 0) return;
    refuse(rule, std::string(name) + " = " + std::to_string(value) +
                     " must be a positive multiple of " + std::to_string(unit) + why);
  }

  void divides(const char* name, std::int64_t block, const char* extent_name, std::int64_t extent) {
    if (block > 0 && extent % block == 0) return;
    refuse("R8", std::string(name) + " = " + std::to_string(block) + " must divide " + extent_name +
                     " = " + std::to_string(extent));
  }

  std::vector<Violation> violations;
};

}  // namespace

std::vector<Allocation> published_allocations(const BlockSizes& blocks, Pass pass,
                                              ElementType x_type, ElementType w_type) {
  const bool backward = is_backward(pass);
  const auto [b, h, v] = blocks;
  std::vector<Allocation> all = {
      {"x", {b, h}, x_type, 2},
      {"w", {h, v}, w_type, 2},
      {"labels", {b}, ElementType::i32, 2},
      {"lse", {b}, ElementType::f32, 2},
      {backward ? "row_scale" : "label_logit", {b}, ElementType::f32, 2},
      {"logits", {b, v}, ElementType::f32, 1},
  };
  if (backward) {
    all.push_back({"grad_x", {b, h}, ElementType::f32, 1});
    all.push_back({"grad_w", {h, v}, ElementType::f32, 1});
  }
  return all;
}

std::int64_t vmem_with_temporaries(const BlockSizes& blocks, Pass pass, ElementType x_type,
                                   ElementType w_type) {
  const auto [b, h, v] = blocks;
  const auto padded_h =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(h > 0 ? h : 0)));
  const bool backward = is_backward(pass);
  const std::int64_t x_bytes = tile::bits_of(x_type) / 8;
  const std::int64_t w_bytes = tile::bits_of(w_type) / 8;
  const std::int64_t gradient = backward ? 8 : 0;  // f32 blocks of dx and dw in two buffers
  const std::int64_t logits = backward ? 12 : 16;  // three or four f32 blocks of b x v
  // 24 bytes a row: three vectors of f32 or i32 in two buffers.
  return b * padded_h * (2 * x_bytes + gradient) + 24 * b +
         padded_h * v * (2 * w_bytes + gradient) + logits * b * v;
}

std::vector<Violation> check_blocks(const Chip& chip, const BlockSizes& blocks,
                                    const ProblemShape& shape, Pass pass, BlockRules rules) {
  is_backward(pass);
  const auto [b, h, v] = blocks;
  BlockCheck check;
  check.multiple("R7", "b_block_size", b, lanes);
  check.multiple("R7", "h_block_size", h, lanes);
  check.multiple("R7", "v_block_size", v, lanes);
  check.divides("b_block_size", b, "B", shape.b);
  check.divides("h_block_size", h, "H", shape.h);
  if (chip.labels_in_tiles_of_1024 && shape.b >= label_tile) {
    check.multiple("R9", "b_block_size", b, label_tile,
                   ": " + chip.name + " lays out labels in tiles of 1024 when B >= 1024 (B = " +
                       std::to_string(shape.b) + ")");
  }
  // In division form: block sizes of any magnitude must not overflow.
  if (b > 0 && v > 0 && b > max_scratch_bytes / 4 / v) {
    check.refuse("R10",
                 "the f32 block of logits, b_block_size x v_block_size = " + std::to_string(b) +
                     " x " + std::to_string(v) + ", takes more than 64 MiB; lower one of them");
    return check.violations;
  }
  if (rules == BlockRules::tokamax) {
    if (b < label_tile)
      check.refuse("R11", "b_block_size = " + std::to_string(b) + " must be at least 1024");
    if (shape.h % 8 != 0)
      check.refuse("R11", "H = " + std::to_string(shape.h) + " must be a multiple of 8");
    if (chip.generation < 5)
      check.refuse("R11", chip.name + " is of generation " + std::to_string(chip.generation) +
                              ", the kernel needs 5 or later");
  }
  if (!check.violations.empty()) return check.violations;
  return tile::check_vmem(
      tile::vmem_use(chip, published_allocations(blocks, pass, shape.x_type, shape.w_type)));
}

}  // namespace tessera::linear_cross_entropy::tpu_tile
