// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/context.hpp"
#include "tessera/cost_estimate.hpp"
#include "tessera/execution.hpp"
#include "tessera/loss.hpp"
#include "tessera/view.hpp"

/// Output projection, softmax cross-entropy and z-loss in one operator; the `[B, V]` logits never
/// exist in memory. `B` tokens, `H` hidden, `V` vocabulary. The maths is in docs/maths.md.
namespace tessera::linear_cross_entropy {

/// The macro-block of every implementation: `b_block_size` rows share one pass over a slice of
/// `v_block_size` columns, contracted in panels `h_block_size` deep (docs/block_sizes.md).
struct BlockSizes {
  std::int64_t b_block_size = 1024;
  std::int64_t h_block_size = 512;
  std::int64_t v_block_size = 2048;

  static BlockSizes get_default() { return {}; }
  /// By name, in the order in which programs take them.
  static constexpr auto axes() {
    return std::array<BlockSizeAxis<BlockSizes>, 3>{{{"b_block_size", &BlockSizes::b_block_size},
                                                     {"h_block_size", &BlockSizes::h_block_size},
                                                     {"v_block_size", &BlockSizes::v_block_size}}};
  }
  friend bool operator==(const BlockSizes&, const BlockSizes&) = default;
};

/// What is read. Floating inputs may be f32, bf16 or f16, mixed freely; labels i32 or i64. Labels,
/// or soft targets in their place, must be given.
struct Inputs {
  View x{};       ///< [..., H]; leading axes flatten to B
  View labels{};  ///< [...], the leading axes of x
  View w{};       ///< [H, V]; a PyTorch weight [V, H] is the same matrix by View::transposed()
  View bias{};    ///< [V], optional
  View weight{};  ///< [...], per token, optional
  View class_weight{};  ///< [V], or [vocab_size_total] on a shard, optional
  View dloss{};         ///< cotangent of the loss, in its shape; default 1 (gradients only)
  View dlse{};          ///< cotangent of lse, [...]; default 0 (gradients only)
  View lse{};           ///< saved lse, [...]; backward without `statistics`
  View statistics{};    ///< saved (max, sum) per row, [..., 2] f32; backward prefers it to lse
  /// Soft targets in place of labels: K pairs of a word and its probability, with `target_probs`,
  /// i32 or i64; an index that is ignore_index is no pair, and a row without any is ignored.
  View target_indices{};  ///< [..., K]
  View target_probs{};    ///< [..., K]
  /// Or a probability for every word; no row is ignored.
  View targets{};  ///< [..., V], or [..., vocab_size_total] on a shard
};

/// The gradients that are added to what their views hold; the others are overwritten. `true` stands
/// for all of them, `false` for none, and several are joined by `|`. A gradient without a view may
/// be named: it is not computed. Micro-batches add to what they share and overwrite what is their
/// own:
///
///     .accumulate = Accumulate::grad_w | Accumulate::grad_bias
class Accumulate {
 public:
  static const Accumulate none, grad_x, grad_w, grad_bias, all;

  constexpr Accumulate() = default;
  /// A bool and nothing that merely converts to one.
  constexpr Accumulate(std::same_as<bool> auto every) : bits_(every ? 7u : 0u) {}

  /// True when all of `gradients` are added.
  constexpr bool has(Accumulate gradients) const {
    return (bits_ & gradients.bits_) == gradients.bits_;
  }
  friend constexpr Accumulate operator|(Accumulate a, Accumulate b) {
    a.bits_ |= b.bits_;
    return a;
  }
  friend constexpr bool operator==(Accumulate, Accumulate) = default;

 private:
  struct Bit {
    unsigned bit;
  };
  explicit constexpr Accumulate(Bit one) : bits_(one.bit) {}
  unsigned bits_ = 0;
};
inline constexpr Accumulate Accumulate::none{};
inline constexpr Accumulate Accumulate::grad_x{Bit{1}};
inline constexpr Accumulate Accumulate::grad_w{Bit{2}};
inline constexpr Accumulate Accumulate::grad_bias{Bit{4}};
inline constexpr Accumulate Accumulate::all{true};

/// Gradient views; those not given are not computed. Types are the views' own.
struct Gradients {
  MutableView grad_x{};     ///< the shape of x
  MutableView grad_w{};     ///< [H, V], any strides without overlap
  MutableView grad_bias{};  ///< [V]
  /// Which of them are added to what is there, in f32 and rounded once; `true`: all.
  Accumulate accumulate{};
};

// The loss half of the operator is shared with softmax_cross_entropy (tessera/loss.hpp).
using tessera::combine;
using tessera::CombineInputs;
using tessera::LossOptions;
using tessera::merge;
using tessera::Outputs;
using tessera::Partial;
using tessera::PartialResult;
using tessera::Wants;

/// How a call runs. The members of tessera::ExecutionOptions, whose comments hold, and this
/// operator's own; nothing here changes a result beyond rounding, but for `gradient_filter_eps`.
struct ExecutionOptions {
  ImplementationList implementation{};
  std::optional<BlockSizes> block_sizes{};
  std::vector<NamedValue> knobs{};
  std::optional<std::int64_t> block_size{};
  std::optional<std::size_t> workspace_bytes{};
  MutableView workspace{};
  cl_command_queue queue = nullptr;
  std::vector<cl_event> wait_for{};
  /// In [0, 1); 0: gradients are exact. Else what is negligible is left out of
  /// grad_x and grad_w, tile by tile: a tile of dz, the gradient of the products z [B, V], adds
  /// nothing to them when each of its elements has |dz_bv| <= gradient_filter_eps * |scale * q_b|.
  /// q_b is the row's coefficient, the factor of the probability p_bv in dz_bv: the token's weight,
  /// dloss and the mean's denominator times (1 + 2 logsumexp_weight lse_b), plus dlse_b, so that
  /// the threshold is one on probabilities and independent of B and of dloss (docs/maths.md). Tiles
  /// with a NaN or an infinity in dz always count; grad_bias and all values stay exact. Each
  /// element of grad_x moves by at most sum_v eps |scale q_b w_hv|, of grad_w by at most
  /// sum_b eps |scale q_b x_bh|. Which tiles there are is the implementation's affair:
  /// `opencl.*` skip their work, `eigen` and `reference` compute exactly. Passes without gradients
  /// ignore it.
  float gradient_filter_eps = 0.0f;
  /// What dz, the gradient of the products z [B, V], may be rounded to before grad_x and grad_w are
  /// multiplied of it, where x and w are both bf16 and the implementation multiplies such pairs.
  /// Nothing or bf16: to bf16, nearest even; each term of grad_x and grad_w then moves by at most
  /// 2^-8 of itself. Where they are both f16, to f16 times a power of two: less (docs/maths.md).
  /// f32: never. Sums stay f32, and grad_bias is summed of dz as it was before.
  /// Dispatch::notes says what was done; passes without gradients ignore it.
  std::optional<DType> dz_dtype{};
};

/// Owned results; those not asked for are empty.
struct Result : LossResult {
  HostTensor grad_x{};
  HostTensor grad_w{};  ///< [H, V], laid out in memory as w is: strides {V, 1} or {1, H}
  HostTensor grad_bias{};
};

// -- Calls that return owned results; they block --------------------------------------------------
//
// Each throws Error: invalid_argument, foreign_context or label_out_of_range where the call itself
// is wrong, before any work; what the implementation that was asked for, or all of them, ran into
// (unsupported, build_failed, out_of_memory, workspace_too_small, execution_failed); and
// label_out_of_range where labels in device memory turn out to be. docs/errors.md has the codes.

/// The loss, () or with Reduction::none [...], and the outputs that `options.wants` names, each
/// [...] (statistics [..., 2]).
TESSERA_API Result forward(Context& context, const Inputs& inputs, const LossOptions& options = {},
                           const ExecutionOptions& execution = {});
/// `forward(context, inputs, {}, {})`: the call above with the default options.
inline Result forward(Context& context, const Inputs& inputs, Defaults, Defaults) {
  return forward(context, inputs, LossOptions{}, ExecutionOptions{});
}
/// The gradients that `options.wants` names, in the shapes and types of their inputs (grad_bias
/// f32), from `inputs.statistics` or `inputs.lse`, one of which must be given. On a shard both are
/// those of the whole.
TESSERA_API Result backward(Context& context, const Inputs& inputs, const LossOptions& options = {},
                            const ExecutionOptions& execution = {});
/// `backward(context, inputs, {}, {})`: the call above with the default options.
inline Result backward(Context& context, const Inputs& inputs, Defaults, Defaults) {
  return backward(context, inputs, LossOptions{}, ExecutionOptions{});
}
/// What forward and backward return, together; a logit is formed once where memory allows. Not on a
/// shard, whose loss nobody knows yet.
TESSERA_API Result value_and_grad(Context& context, const Inputs& inputs,
                                  const LossOptions& options = {},
                                  const ExecutionOptions& execution = {});
/// Statistics of one shard of the vocabulary (`options.vocab_offset`, `vocab_size_total`), a row
/// for each token, to be merged by `combine`.
TESSERA_API PartialResult forward_partial(Context& context, const Inputs& inputs,
                                          const LossOptions& options = {},
                                          const ExecutionOptions& execution = {});

// -- Calls that write the caller's views; asynchronous unless any view is host memory -------------
//
// Where all views are device memory the call returns when its commands are enqueued, behind
// `execution.wait_for` on `execution.queue`; a view in host memory makes it wait until they are
// done. Views, queue and lent workspace must live, and inputs stay as they are, until the
// Completion is. Throws as the calls above before an output is touched; what fails later,
// `Completion::wait` throws, and the outputs that were given are then unspecified.

/// Writes the outputs that are given, at least one, in the shapes that Outputs says.
TESSERA_API Completion forward(Context& context, const Inputs& inputs, const Outputs& outputs,
                               const LossOptions& options, const ExecutionOptions& execution = {});
/// Writes, or adds to, the gradients that are given, at least one.
TESSERA_API Completion backward(Context& context, const Inputs& inputs, const Gradients& gradients,
                                const LossOptions& options, const ExecutionOptions& execution = {});
/// Both; at least one gradient.
TESSERA_API Completion value_and_grad(Context& context, const Inputs& inputs,
                                      const Outputs& outputs, const Gradients& gradients,
                                      const LossOptions& options,
                                      const ExecutionOptions& execution = {});

// -- Questions ------------------------------------------------------------------------------------

// Views need shapes, strides and types; host pointers may be null. Without outputs and gradients
// the question is about the call that owns its results.

/// What the call would use; compiles what it needs. Throws Error where the call would.
TESSERA_API Plan plan(Context& context, Pass pass, const Inputs& inputs, const Outputs& outputs,
                      const Gradients& gradients, const LossOptions& options = {},
                      const ExecutionOptions& execution = {});
/// Why `implementation` would not serve this request, or what is wrong with it; nothing: it would
/// run. Compiles nothing. Throws Error invalid_argument for a name that no implementation has.
TESSERA_API std::optional<std::string> why_unsupported(Context& context,
                                                       const std::string& implementation, Pass pass,
                                                       const Inputs& inputs, const Outputs& outputs,
                                                       const Gradients& gradients,
                                                       const LossOptions& options = {},
                                                       const ExecutionOptions& execution = {});
/// What is compiled in, in the order of the table.
TESSERA_API std::vector<ImplementationInfo> implementations();
/// Cost of a pass by shapes and types, with the blocks that would be chosen; runs and compiles
/// nothing. Throws Error where the call is wrong or nobody would serve it.
TESSERA_API CostEstimate cost_estimate(Context& context, Pass pass, const Inputs& inputs,
                                       const Outputs& outputs, const Gradients& gradients,
                                       const LossOptions& options = {},
                                       const ExecutionOptions& execution = {});
/// Block sizes that `implementation` would choose for inputs of these shapes and types, and where
/// they come from. Pointers may be null. Throws as `cost_estimate`.
TESSERA_API std::pair<BlockSizes, BlockSource> infer_block_sizes(Context& context,
                                                                 const std::string& implementation,
                                                                 Pass pass, const Inputs& inputs);
/// The same for dense arrays of these extents.
TESSERA_API std::pair<BlockSizes, BlockSource> infer_block_sizes(
    Context& context, const std::string& implementation, Pass pass, std::int64_t b, std::int64_t h,
    std::int64_t v, DType x_type = DType::f32, DType w_type = DType::f32);

}  // namespace tessera::linear_cross_entropy
