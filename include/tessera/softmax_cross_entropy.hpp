// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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

/// Softmax cross-entropy and z-loss on logits that already exist: the loss half of
/// linear_cross_entropy, with the same options and outputs. The maths is in docs/maths.md.
namespace tessera::softmax_cross_entropy {

/// `b_block_size` rows share one work item or work-group; each row is read in slices of
/// `v_block_size` columns (docs/block_sizes.md).
struct BlockSizes {
  std::int64_t b_block_size = 1024;
  std::int64_t v_block_size = 2048;

  static BlockSizes get_default() { return {}; }
  /// By name, in the order in which programs take them.
  static constexpr auto axes() {
    return std::array<BlockSizeAxis<BlockSizes>, 2>{
        {{"b_block_size", &BlockSizes::b_block_size}, {"v_block_size", &BlockSizes::v_block_size}}};
  }
  friend bool operator==(const BlockSizes&, const BlockSizes&) = default;
};

/// What is read. Floating inputs may be f32, bf16 or f16; labels i32 or i64.
struct Inputs {
  View logits{};        ///< [..., V], before scale and soft cap; leading axes flatten to B
  View labels{};        ///< [...]
  View weight{};        ///< [...], per token, optional
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

/// Gradient view; its type is its own. It may be the very view `logits` (in place), else it must
/// not overlap it.
struct Gradients {
  MutableView grad_logits{};  ///< the shape of logits
  bool accumulate = false;    ///< add to what is there; formed in f32, rounded once
};

// Shared with linear_cross_entropy (tessera/loss.hpp).
using tessera::combine;
using tessera::CombineInputs;
using tessera::LossOptions;
using tessera::merge;
using tessera::Outputs;
using tessera::Partial;
using tessera::PartialResult;
using tessera::Wants;

using ExecutionOptions = tessera::ExecutionOptions<BlockSizes>;

/// Owned results; those not asked for are empty.
struct Result : LossResult {
  HostTensor grad_logits{};
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
/// The gradient in the shape and type of the logits, from `inputs.statistics` or `inputs.lse`, one
/// of which must be given. On a shard both are those of the whole.
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
TESSERA_API std::pair<BlockSizes, BlockSource> infer_block_sizes(Context& context,
                                                                 const std::string& implementation,
                                                                 Pass pass, std::int64_t b,
                                                                 std::int64_t v,
                                                                 DType logits_type = DType::f32);

}  // namespace tessera::softmax_cross_entropy
