// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/linear_cross_entropy.hpp"

/// What a student learns from a teacher's distribution, beside its labels: the output projections
/// of both, the divergence of the two softmaxes, cross-entropy and z-loss in one operator.
/// Neither's `[B, V]` logits exist in memory. The maths is in docs/maths.md.
///
/// With u = z / T and v = t / T, the student's and the teacher's final logits over the temperature,
/// q the softmax of u and p that of v, the loss of a row is
///
///     weight * ((1 - alpha) nll + alpha T^2 divergence(p, q) + logsumexp_weight lse^2)
///
/// where nll and lse are the student's at T = 1, as in linear_cross_entropy. The mean is over the
/// weights of the rows that count.
namespace tessera::linear_distillation {

using linear_cross_entropy::Accumulate;
using linear_cross_entropy::BlockSizes;

/// How far the student's distribution is from its teacher's. A probability of 0 adds nothing.
enum class Divergence {
  forward_kl,  ///< KL(p||q): the student covers what the teacher may say
  reverse_kl,  ///< KL(q||p): the student says what the teacher is sure of
  jsd          ///< beta KL(p||m) + (1 - beta) KL(q||m) with m = beta p + (1 - beta) q
};
inline constexpr std::array<const char*, 3> divergence_names = {"forward_kl", "reverse_kl", "jsd"};
TESSERA_API const char* to_string(Divergence divergence);

/// What is read. Floating inputs may be f32, bf16 or f16, mixed freely; labels i32 or i64. The
/// teacher is its own layer, or its logits. Labels, or soft targets in their place, must be given
/// but at alpha 1; without any every row counts.
struct Inputs {
  View x{};               ///< [..., H], the student's; leading axes flatten to B
  View w{};               ///< [H, V], the student's
  View bias{};            ///< [V], optional
  View teacher_x{};       ///< [..., G]: the teacher's hidden states, of a width of their own
  View teacher_w{};       ///< [G, V]
  View teacher_bias{};    ///< [V], optional
  View teacher_logits{};  ///< [..., V] before scale and cap, in place of teacher_x and teacher_w
  View labels{};          ///< [...], the leading axes of x
  View weight{};          ///< [...], per token, optional
  View dloss{};           ///< cotangent of the loss, in its shape; default 1 (gradients only)
  View dlse{};            ///< cotangent of lse, [...]; default 0 (gradients only)
  View lse{};             ///< saved lse, [...]; backward without `statistics`
  View statistics{};      ///< saved (max, sum) per row, [..., 2] f32; backward prefers it to lse
  View target_indices{};  ///< [..., K]: pairs in place of labels, as in linear_cross_entropy
  View target_probs{};    ///< [..., K]
  View targets{};         ///< [..., V]: or a probability for every word
  /// [..., 5] f32, saved by forward or combine, optional: without them backward looks at all logits
  /// once more, or twice for jsd, before the first gradient. A shard needs them.
  View divergence_statistics{};
};

/// Gradient views, all of the student; those not given are not computed. Types are the views' own.
struct Gradients {
  MutableView grad_x{};     ///< the shape of x
  MutableView grad_w{};     ///< [H, V], any strides without overlap
  MutableView grad_bias{};  ///< [V]
  /// Which of them are added to what is there, in f32 and rounded once; `true`: all.
  Accumulate accumulate{};
};

/// What is computed.
struct Options {
  Divergence divergence = Divergence::forward_kl;
  float beta = 0.5f;  ///< of jsd, in [0, 1]; 0 means forward KL, 1 reverse KL
  /// From 1e-6 to 1e6; divides the logits of both, after scale and cap.
  float temperature = 1.0f;
  float alpha = 0.5f;  ///< in [0, 1]: the share of the divergence
  float teacher_logit_scale = 1.0f;
  float teacher_logit_soft_cap = 0.0f;  ///< 0: off
  LossOptions loss{};                   ///< the student's, and what all losses have
};

/// jsd at either end of beta is a KL, whose shards can be merged.
TESSERA_API Divergence effective_divergence(const Options& options);

/// Output views; those not given are not computed.
struct Outputs : tessera::Outputs {
  MutableView divergence{};      ///< [...] f32, unweighted and without T^2
  MutableView target_entropy{};  ///< [...] f32, of p, in nats
  /// [..., 5] f32: the maximum of u and the sum of exp(u - maximum), the same of v, and what the
  /// gradient is relative to: the divergence, or KL(q||m) for jsd. Backward reads them.
  MutableView divergence_statistics{};
};

/// How a call runs. The members of tessera::ExecutionOptions, whose comments hold, and this
/// operator's own; nothing here changes a result beyond rounding.
struct ExecutionOptions {
  ImplementationList implementation{};
  std::optional<BlockSizes> block_sizes{};
  std::vector<NamedValue> knobs{};
  std::optional<std::int64_t> block_size{};
  std::optional<std::size_t> workspace_bytes{};
  MutableView workspace{};
  cl_command_queue queue = nullptr;
  std::vector<cl_event> wait_for{};
  /// linear_cross_entropy::ExecutionOptions::dz_dtype, of the student.
  std::optional<DType> dz_dtype{};
};

/// Owned results; those not asked for are empty.
struct Result : LossResult {
  HostTensor divergence{};
  HostTensor target_entropy{};
  HostTensor divergence_statistics{};
  HostTensor grad_x{};
  HostTensor grad_w{};  ///< [H, V], laid out in memory as w is
  HostTensor grad_bias{};
};

/// One row of one shard, of both distributions at the temperature: what the divergence is made of.
/// Sums are over the shard's words and relative to the maxima, so nothing cancels.
struct DivergenceSums {
  float max_u = 0.0f;
  float max_v = 0.0f;
  float sum_u = 0.0f;  ///< sum of exp(u - max_u)
  float sum_v = 0.0f;
  /// forward_kl: sum of exp(v') (v' - u'), where u' = u - max_u and v' = v - max_v; reverse_kl: sum
  /// of exp(u') (u' - v').
  float cross = 0.0f;
  float exp_v = 0.0f;  ///< sum of exp(v') v'
};

/// The rows of one shard, or of several merged: the student's, and beside each the sums of the
/// divergence.
struct PartialResult : tessera::PartialResult {
  std::vector<DivergenceSums> divergence_rows{};   ///< B rows, flat
  Divergence divergence = Divergence::forward_kl;  ///< what they are sums of
};

// The calls are those of linear_cross_entropy, with the same meaning, errors and asynchrony: see
// tessera/linear_cross_entropy.hpp. The teacher gets no gradient.

TESSERA_API Result forward(Context& context, const Inputs& inputs, const Options& options = {},
                           const ExecutionOptions& execution = {});
inline Result forward(Context& context, const Inputs& inputs, Defaults, Defaults) {
  return forward(context, inputs, Options{}, ExecutionOptions{});
}
/// From `inputs.statistics` or `inputs.lse`, the student's at T = 1, and
/// `inputs.divergence_statistics`.
TESSERA_API Result backward(Context& context, const Inputs& inputs, const Options& options = {},
                            const ExecutionOptions& execution = {});
inline Result backward(Context& context, const Inputs& inputs, Defaults, Defaults) {
  return backward(context, inputs, Options{}, ExecutionOptions{});
}
TESSERA_API Result value_and_grad(Context& context, const Inputs& inputs,
                                  const Options& options = {},
                                  const ExecutionOptions& execution = {});
/// w and teacher_w (or teacher_logits) are a shard's columns. Error unsupported for jsd, which
/// would take two rounds of exchange.
TESSERA_API PartialResult forward_partial(Context& context, const Inputs& inputs,
                                          const Options& options = {},
                                          const ExecutionOptions& execution = {});
/// As tessera::merge; throws `Error invalid_argument` also where the divergences differ.
TESSERA_API PartialResult merge(std::span<const PartialResult> shards);
/// As tessera::combine, with the outputs that are this operator's own: `statistics` and
/// `divergence_statistics` are what `backward` of each shard reads.
TESSERA_API Result combine(std::span<const PartialResult> shards, const CombineInputs& inputs,
                           const Options& options);
/// The same of a single PartialResult, which is the whole: merged, or of a call without shards.
inline Result combine(const std::same_as<PartialResult> auto& whole, const CombineInputs& inputs,
                      const Options& options) {
  return combine(std::span<const PartialResult>(&whole, 1), inputs, options);
}

TESSERA_API Completion forward(Context& context, const Inputs& inputs, const Outputs& outputs,
                               const Options& options, const ExecutionOptions& execution = {});
TESSERA_API Completion backward(Context& context, const Inputs& inputs, const Gradients& gradients,
                                const Options& options, const ExecutionOptions& execution = {});
TESSERA_API Completion value_and_grad(Context& context, const Inputs& inputs,
                                      const Outputs& outputs, const Gradients& gradients,
                                      const Options& options,
                                      const ExecutionOptions& execution = {});

TESSERA_API Plan plan(Context& context, Pass pass, const Inputs& inputs, const Outputs& outputs,
                      const Gradients& gradients, const Options& options = {},
                      const ExecutionOptions& execution = {});
TESSERA_API std::optional<std::string> why_unsupported(Context& context,
                                                       const std::string& implementation, Pass pass,
                                                       const Inputs& inputs, const Outputs& outputs,
                                                       const Gradients& gradients,
                                                       const Options& options = {},
                                                       const ExecutionOptions& execution = {});
TESSERA_API std::vector<ImplementationInfo> implementations();
TESSERA_API CostEstimate cost_estimate(Context& context, Pass pass, const Inputs& inputs,
                                       const Outputs& outputs, const Gradients& gradients,
                                       const Options& options = {},
                                       const ExecutionOptions& execution = {});
TESSERA_API std::pair<BlockSizes, BlockSource> infer_block_sizes(Context& context,
                                                                 const std::string& implementation,
                                                                 Pass pass, const Inputs& inputs);

}  // namespace tessera::linear_distillation
