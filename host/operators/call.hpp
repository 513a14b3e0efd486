// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/context.hpp"
#include "tessera/cost_estimate.hpp"
#include "tessera/execution.hpp"
#include "tessera/operator.hpp"
#include "tessera/view.hpp"

/// Operators and their calls as values, for code that works with any of them: the programs, the
/// bench, the tests. Not installed; who calls an operator by its name needs none of this.
namespace tessera::operators {

/// An input. What its members mean, tessera/operator.hpp says, as for all that follows.
struct Input {
  const char* name;
  SymbolicShape shape;
  ElementTypes types;
  Reads reads;

  /// What a call has to have beside the labels.
  bool is_operand() const noexcept {
    return reads == Reads::always && types == ElementTypes::floating;
  }
  /// A matrix that no token has an axis of: it has a layout, [H, V] or [V, H].
  bool is_weight() const noexcept {
    return !shape.has_leading() && !shape.is_of_loss() && shape.rank() == 2;
  }
};

struct Output {
  const char* name;
  SymbolicShape shape;
  ElementTypes types;
};

struct Gradient {
  const char* name;
  std::size_t of;  ///< place of the input
  std::optional<DType> type;
  bool in_place;
};

struct Option {
  const char* name;
  const char* help;
  OptionValue standard;  ///< its default
  OptionRange range;
  std::span<const char* const> choices;
};

/// What an operator is. Places are those of its OperatorTraits.
struct TESSERA_API Description {
  const char* name;
  std::vector<Pass> passes;
  std::vector<Input> inputs;  ///< the first gives the leading axes
  std::vector<Output> outputs;
  std::vector<Gradient> gradients;
  std::vector<Option> options;  ///< what to compute, then those of execution that are its own
  std::vector<const char*> block_sizes;
  std::vector<ImplementationInfo> (*implementations)();

  /// nullptr: the operator has none of that name.
  const Input* input(std::string_view wanted) const noexcept;
  const Option* option(std::string_view wanted) const noexcept;
  bool has(Pass pass) const noexcept;
  bool has_weights() const noexcept;
  bool has_hidden() const noexcept;
};

/// Every operator, in the order of tessera/operators.hpp.
TESSERA_API const std::vector<Description>& descriptions();
/// Throws Error invalid_argument for a name that no operator has.
TESSERA_API const Description& description(std::string_view name);

/// A call. Views by the places of the description; those not given are empty.
struct TESSERA_API Call {
  Call(const Description& op, Pass pass);

  const Description* op;
  Pass pass;
  std::vector<View> inputs;
  std::vector<MutableView> outputs;
  std::vector<MutableView> gradients;
  std::vector<bool> accumulate;  ///< of each gradient
  std::vector<OptionValue> options;
  ImplementationList implementation{};
  std::vector<NamedValue> block_sizes{};  ///< empty: not given
  std::vector<NamedValue> knobs{};
  std::optional<std::size_t> workspace_bytes{};
  MutableView workspace{};
  cl_command_queue queue = nullptr;
  std::vector<cl_event> wait_for{};

  /// Sets the option of that name; false: the operator has none.
  bool set(std::string_view name, const OptionValue& value);
};

/// Of a pass that is not forward_partial: the operator's call with views, and its errors.
TESSERA_API Completion run(Context& context, const Call& call);
TESSERA_API Plan plan(Context& context, const Call& call);
TESSERA_API CostEstimate cost_estimate(Context& context, const Call& call);
TESSERA_API std::optional<std::string> why_unsupported(Context& context,
                                                       const std::string& implementation,
                                                       const Call& call);
/// Of the call's pass and inputs.
TESSERA_API std::pair<std::vector<NamedValue>, BlockSource> infer_block_sizes(
    Context& context, const std::string& implementation, const Call& call);

/// The call in the operator's own types, for what the functions above do not do.
template <class Operator>
struct Typed {
  typename Operator::Inputs inputs{};
  typename Operator::Outputs outputs{};
  typename Operator::Gradients gradients{};
  typename Operator::Options options{};
  typename Operator::ExecutionOptions execution{};

  explicit Typed(const Call& call) {
    using Traits = OperatorTraits<Operator>;
    std::size_t at = 0;
    for (const auto& input : Traits::inputs) inputs.*input.view = call.inputs[at++];
    at = 0;
    for (const auto& output : Traits::outputs) outputs.*output.view = call.outputs[at++];
    for (at = 0; at < Traits::gradients.size(); ++at) {
      gradients.*Traits::gradients[at].view = call.gradients[at];
      if (call.accumulate[at]) Traits::accumulate(gradients, at);
    }
    at = 0;
    for (const auto& option : Traits::options) option.set(options, call.options[at++]);
    for (const auto& option : Traits::execution_options) option.set(execution, call.options[at++]);
    execution.implementation = call.implementation;
    if (!call.block_sizes.empty()) from_named(call.block_sizes, execution.block_sizes.emplace());
    execution.knobs = call.knobs;
    execution.workspace_bytes = call.workspace_bytes;
    execution.workspace = call.workspace;
    execution.queue = call.queue;
    execution.wait_for = call.wait_for;
  }
};

}  // namespace tessera::operators
