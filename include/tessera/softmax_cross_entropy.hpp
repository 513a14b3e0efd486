// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/context.hpp"
#include "tessera/cost_estimate.hpp"
#include "tessera/execution.hpp"
#include "tessera/loss.hpp"
#include "tessera/operator.hpp"
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

/// Loss and the optional outputs named by `options.wants`. Throws Error.
TESSERA_API Result forward(Context& context, const Inputs& inputs, const LossOptions& options = {},
                           const ExecutionOptions& execution = {});
/// `forward(context, inputs, {}, {})`: the call above with the default options.
inline Result forward(Context& context, const Inputs& inputs, Defaults, Defaults) {
  return forward(context, inputs, LossOptions{}, ExecutionOptions{});
}
/// Gradients from `inputs.statistics` or `inputs.lse`. On a shard both are those of the whole.
TESSERA_API Result backward(Context& context, const Inputs& inputs, const LossOptions& options = {},
                            const ExecutionOptions& execution = {});
/// `backward(context, inputs, {}, {})`: the call above with the default options.
inline Result backward(Context& context, const Inputs& inputs, Defaults, Defaults) {
  return backward(context, inputs, LossOptions{}, ExecutionOptions{});
}
/// Loss, optional outputs and gradients together.
TESSERA_API Result value_and_grad(Context& context, const Inputs& inputs,
                                  const LossOptions& options = {},
                                  const ExecutionOptions& execution = {});
/// Statistics of one shard of the vocabulary, to be merged by `combine`.
TESSERA_API PartialResult forward_partial(Context& context, const Inputs& inputs,
                                          const LossOptions& options = {},
                                          const ExecutionOptions& execution = {});

// -- Calls that write the caller's views; asynchronous unless any view is host memory -------------

TESSERA_API Completion forward(Context& context, const Inputs& inputs, const Outputs& outputs,
                               const LossOptions& options, const ExecutionOptions& execution = {});
TESSERA_API Completion backward(Context& context, const Inputs& inputs, const Gradients& gradients,
                                const LossOptions& options, const ExecutionOptions& execution = {});
TESSERA_API Completion value_and_grad(Context& context, const Inputs& inputs,
                                      const Outputs& outputs, const Gradients& gradients,
                                      const LossOptions& options,
                                      const ExecutionOptions& execution = {});

// -- Questions ------------------------------------------------------------------------------------

/// What the call would use; compiles what it needs. Views need shapes, strides and types; host
/// pointers may be null.
TESSERA_API Plan plan(Context& context, Pass pass, const Inputs& inputs, const Outputs& outputs,
                      const Gradients& gradients, const LossOptions& options = {},
                      const ExecutionOptions& execution = {});
/// Why `implementation` would not serve this request; nothing: it would.
TESSERA_API std::optional<std::string> why_unsupported(Context& context,
                                                       const std::string& implementation, Pass pass,
                                                       const Inputs& inputs, const Outputs& outputs,
                                                       const Gradients& gradients,
                                                       const LossOptions& options = {},
                                                       const ExecutionOptions& execution = {});
/// What is compiled in, in the order of the table.
TESSERA_API std::vector<ImplementationInfo> implementations();
/// Cost of a pass by shapes and types, with the blocks that would be chosen.
TESSERA_API CostEstimate cost_estimate(Context& context, Pass pass, const Inputs& inputs,
                                       const Outputs& outputs, const Gradients& gradients,
                                       const LossOptions& options = {},
                                       const ExecutionOptions& execution = {});
/// Block sizes that `implementation` would choose for inputs of these shapes and types, and where
/// they come from. Pointers may be null.
TESSERA_API std::pair<BlockSizes, BlockSource> infer_block_sizes(Context& context,
                                                                 const std::string& implementation,
                                                                 Pass pass, const Inputs& inputs);
/// The same for dense arrays of these extents.
TESSERA_API std::pair<BlockSizes, BlockSource> infer_block_sizes(Context& context,
                                                                 const std::string& implementation,
                                                                 Pass pass, std::int64_t b,
                                                                 std::int64_t v,
                                                                 DType logits_type = DType::f32);

/// The operator as a type (tessera/operator.hpp).
struct Operator {
  using Inputs = softmax_cross_entropy::Inputs;
  using Outputs = tessera::Outputs;
  using Gradients = softmax_cross_entropy::Gradients;
  using Options = LossOptions;
  using Result = softmax_cross_entropy::Result;
  using BlockSizes = softmax_cross_entropy::BlockSizes;
  using ExecutionOptions = softmax_cross_entropy::ExecutionOptions;
};

}  // namespace tessera::softmax_cross_entropy

template <>
struct tessera::OperatorTraits<tessera::softmax_cross_entropy::Operator> {
  using Operator = softmax_cross_entropy::Operator;
  using Inputs = Operator::Inputs;
  using Gradients = Operator::Gradients;
  using Result = Operator::Result;

  static constexpr const char* name = "softmax_cross_entropy";
  static constexpr auto passes = loss_passes;
  static constexpr auto inputs = with_loss_inputs<Inputs>({
      {"logits", &Inputs::logits, "[..., V]", ElementTypes::floating, Reads::always},
  });
  static constexpr auto outputs = loss_outputs;
  static constexpr std::array<GradientArgument<Operator>, 1> gradients = {{
      {"grad_logits",
       &Gradients::grad_logits,
       &Inputs::logits,
       &Result::grad_logits,
       nullptr,
       {},
       true},
  }};
  static bool accumulates(const Gradients& given, std::size_t) { return given.accumulate; }
  static std::vector<ImplementationInfo> implementations() {
    return softmax_cross_entropy::implementations();
  }
};
