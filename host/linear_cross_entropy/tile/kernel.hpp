// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/linear_cross_entropy_tile.hpp"
#include "tessera/tile/call.hpp"
#include "tessera/tile/ops.hpp"

/// The fused loss on the tile machine: two kernels as Pallas has them, their block rules, and the
/// blocks that are chosen where nobody gives any. docs/tile_machine.md describes the schedules.
namespace tessera::linear_cross_entropy::tpu_tile {

/// Blocks come in whole registers of lanes (R7); with the labels' layout of R9 rows come by 1024.
inline constexpr std::int64_t lanes = 128;
inline constexpr std::int64_t label_tile = 1024;

/// What a kernel knows of its problem before it sees any data.
struct Kernel {
  std::int64_t b = 0;  ///< a multiple of b_block_size
  std::int64_t h = 0;  ///< a multiple of h_block_size
  std::int64_t v = 0;  ///< any
  BlockSizes blocks{};
  bool w_is_vh = false;  ///< w is [v, h], not [h, v]
  float scale = 1.0f;
  float cap = 0.0f;
  bool grad_w_is_vh = false;  ///< as w_is_vh, of grad_w
  /// f32 operands are never rounded; what modelling a kernel that rounds them sets otherwise.
  tile::DotOptions product{.exact_f32 = true};

  std::int64_t row_blocks() const { return b / blocks.b_block_size; }
  std::int64_t column_blocks() const { return (v - 1) / blocks.v_block_size + 1; }
  std::int64_t depth_blocks() const { return h / blocks.h_block_size; }
  /// v in whole blocks: the columns of grad_w, whose edge block is copied whole.
  std::int64_t padded_v() const { return column_blocks() * blocks.v_block_size; }
};

using Floats = tile::Array<float>;
using Integers = tile::Array<std::int32_t>;
/// x or w as the kernel reads it: f32 or bf16.
using Matrix = std::variant<tile::Array<float>, tile::Array<bf16>>;

/// Statistics per row as streaming::RowSums has them, in f32. What is not given is not computed.
struct ForwardArrays {
  Matrix x;                            ///< [b, h]
  Matrix w;                            ///< [h, v] or [v, h]
  Integers labels;                     ///< [b] columns of this call; -1: elsewhere
  std::optional<Floats> bias;          ///< [1, v]
  std::optional<Floats> class_weight;  ///< [1, v]; not given: 1
  Floats max, sum, label_logit;        ///< [b]
  std::optional<Floats> class_logit;   ///< [b] sum of c * (logit - max)
  std::optional<Floats> exp_logit;     ///< [b] sum of exp(logit - max) * (logit - max)
  std::optional<Integers> argmax;      ///< [b] column of this call
};

/// dz = (gain * exp(logit - max) - hit * onehot - smooth * c) * slope, per row; a row with
/// max = +Inf and the rest 0 adds nothing.
struct BackwardArrays {
  Matrix x, w;      ///< as forward's
  Integers labels;  ///< [b]
  std::optional<Floats> bias, class_weight;
  Floats max, gain, hit;         ///< [b]
  std::optional<Floats> smooth;  ///< [b], with label smoothing
  /// [splits(), b, h]: what each core's share of the vocabulary adds.
  std::optional<Floats> grad_x;
  std::optional<Floats> grad_w;     ///< [h, padded_v] or [padded_v, h]
  std::optional<Floats> grad_bias;  ///< [row_blocks, 1, v]: what each block of rows adds
};

/// Cores that share the vocabulary in backward: all that share a device, at most one per block of
/// columns.
std::int64_t splits(const tile::Chip& chip, const Kernel& kernel);

void forward(tile::Machine& machine, const Kernel& kernel, const ForwardArrays& arrays);
void backward(tile::Machine& machine, const Kernel& kernel, const BackwardArrays& arrays);

/// What the operands and optional terms of a kernel are, for arrays without data.
struct Operands {
  tile::ElementType x_type = tile::ElementType::f32;
  tile::ElementType w_type = tile::ElementType::f32;
  bool bias = false, class_weight = false;
  bool class_terms = false, entropy = false, argmax = false;             ///< forward
  bool smooth = false, grad_x = true, grad_w = true, grad_bias = false;  ///< backward
};

/// Runs the kernel of `pass` (forward or backward) on arrays of the machine's own, with random
/// operands, in a dry run without data.
void run_alone(tile::Machine& machine, Pass pass, const Kernel& kernel, const Operands& operands);

/// What the kernel of `pass` holds in VMEM, window by window.
std::vector<tile::Allocation> allocations(Pass pass, const Kernel& kernel,
                                          const Operands& operands);

/// Every rule that the chip has for these blocks (R3, R7 to R10, R13, the MXU's types); `kernel.b`
/// is the caller's. `pass`: forward or backward.
std::vector<tile::Violation> check(const tile::Chip& chip, Pass pass, const Kernel& kernel,
                                   const Operands& operands);

/// The smallest that R7 and R9 allow for this many rows.
BlockSizes smallest_blocks(const tile::Chip& chip, std::int64_t b);

/// The nearest to `wanted` that divide B and H: those of a table may come from other extents. What
/// was changed is added to `changes`, each behind "; ".
BlockSizes fitted(const tile::Chip& chip, const BlockSizes& wanted, const Kernel& kernel,
                  std::string& changes);

/// Legal blocks for the shape that move the fewest bytes; nothing where none are legal. `pass` may
/// be value_and_grad, whose blocks serve both kernels.
std::optional<std::pair<BlockSizes, BlockSource>> own_blocks(const tile::Chip& chip, Pass pass,
                                                             const Kernel& kernel,
                                                             const Operands& operands);
/// Those of the tables, else `own_blocks`: what a call has of the table's rows around it
/// (host/operators/tuned.hpp), for a kernel without a call.
std::optional<std::pair<BlockSizes, BlockSource>> choose_blocks(const tile::Chip& chip, Pass pass,
                                                                const Kernel& kernel,
                                                                const Operands& operands);

}  // namespace tessera::linear_cross_entropy::tpu_tile
