// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>

#include "host/dispatch/guarded.hpp"
#include "host/operators/operator.hpp"
#include "host/operators/traits.hpp"

/// The door between an operator's public structs and its calls as values.
namespace tessera::operators {

/// The number of different letters in the shapes.
template <class Arguments>
constexpr std::size_t letter_count(const Arguments& arguments) {
  std::size_t count = 0;
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    const bool is_used = std::any_of(arguments.begin(), arguments.end(), [=](const auto& each) {
      for (int axis = 0; axis < each.shape.rank(); ++axis) {
        if (each.shape.axis(axis) == letter) return true;
      }
      return false;
    });
    if (is_used) ++count;
  }
  return count;
}

/// The description that OperatorTraits gives.
template <class Op>
Description describe() {
  using Traits = OperatorTraits<Op>;
  static_assert(Traits::inputs.size() <= decltype(Call::inputs)::max_count &&
                    Traits::outputs.size() <= decltype(Call::outputs)::max_count &&
                    Traits::gradients.size() <= decltype(Call::gradients)::max_count &&
                    Traits::options.size() + Traits::execution_options.size() <=
                        decltype(Call::options)::max_count &&
                    Op::BlockSizes::axes().size() <= Blocks::max_count,
                "a Call has room for the operator's arguments");
  static_assert(letter_count(Traits::inputs) <= Symbols::max_letters,
                "Symbols has room for the letters of the inputs' shapes");
  constexpr auto in_place = [](const auto& results) {
    return std::count_if(results.begin(), results.end(),
                         [](const auto& each) { return static_cast<bool>(each.in_place); });
  };
  constexpr auto together =
      std::count(Traits::passes.begin(), Traits::passes.end(), Pass::value_and_grad);
  static_assert(in_place(Traits::outputs) <= 1 && in_place(Traits::gradients) <= 1 &&
                    in_place(Traits::outputs) + in_place(Traits::gradients) <= 2 - together,
                "check_overlaps knows one result in place of an input in each pass");
  Description op{.name = Traits::name,
                 .passes = {Traits::passes.begin(), Traits::passes.end()},
                 .inputs = {},
                 .outputs = {},
                 .gradients = {},
                 .options = {},
                 .block_sizes = to_named(Op::BlockSizes::get_default()),
                 .behind = Traits::behind};
  for (const auto& each : Traits::inputs) {
    op.inputs.push_back({each.name, each.shape, each.types, each.reads, each.layout});
  }
  const typename Op::Wants wants;
  for (const auto& each : Traits::outputs) {
    op.outputs.push_back(
        {each.name, each.shape, each.types, is_wanted(each, wants), each.in_place, each.layout});
  }
  for (const auto& each : Traits::gradients) {
    const auto of = static_cast<std::size_t>(&input_of(each) - Traits::inputs.data());
    op.gradients.push_back({each.name, of, each.type, each.in_place, is_wanted(each, wants)});
  }
  for (const auto& each : Traits::options) op.options.push_back(described(each));
  for (const auto& each : Traits::execution_options) op.options.push_back(described(each));
  return op;
}

/// The operator's place in `descriptions()`.
template <class Op>
const Description& description_of() {
  static const Description& op = description(OperatorTraits<Op>::name);
  return op;
}

/// A call of the operator's public functions as a value. Throws Error out_of_memory.
template <class Op>
Call bind(Pass pass, const typename Op::Inputs& inputs, const typename Op::Outputs& outputs,
          const typename Op::Gradients& gradients, const typename Op::Options& options,
          const typename Op::ExecutionOptions& execution) {
  return dispatch::guarded(OperatorTraits<Op>::name, [&] {
    using Traits = OperatorTraits<Op>;
    Call call(description_of<Op>(), pass);
    const auto& wants = Traits::wants(options);
    for (std::size_t i = 0; i < Traits::inputs.size(); ++i) {
      call.inputs[i] = inputs.*Traits::inputs[i].view;
    }
    for (std::size_t i = 0; i < Traits::outputs.size(); ++i) {
      call.outputs[i] = outputs.*Traits::outputs[i].view;
      call.wants[i] = is_wanted(Traits::outputs[i], wants);
    }
    for (std::size_t i = 0; i < Traits::gradients.size(); ++i) {
      call.gradients[i] = gradients.*Traits::gradients[i].view;
      call.accumulate[i] = Traits::accumulates(gradients, i);
      call.wants_gradients[i] = is_wanted(Traits::gradients[i], wants);
    }
    std::size_t at = 0;
    for (const auto& each : Traits::options) call.options[at++] = each.value(options);
    for (const auto& each : Traits::execution_options) call.options[at++] = each.value(execution);
    call.implementation = execution.implementation;
    if (execution.block_sizes) {
      auto& blocks = call.block_sizes.emplace(Op::BlockSizes::axes().size());
      at = 0;
      for (const auto& axis : Op::BlockSizes::axes()) {
        blocks[at++] = (*execution.block_sizes).*axis.value;
      }
    }
    call.block_size = execution.block_size;
    call.knobs = execution.knobs;
    call.workspace_bytes = execution.workspace_bytes;
    call.workspace = execution.workspace;
    call.queue = execution.queue;
    call.wait_for = execution.wait_for;
    return call;
  });
}

/// The place in a call of the input that `member` names, and the view there.
template <class Op, auto member>
constexpr std::size_t place_of_input = [] {
  std::size_t at = 0;
  while (OperatorTraits<Op>::inputs[at].view != member) ++at;
  return at;
}();
template <class Op, auto member>
const View& input(const Call& call) {
  return call.inputs[place_of_input<Op, member>];
}

/// The block sizes in the operator's own struct; nothing: the caller gave none.
template <class BlockSizes>
std::optional<BlockSizes> blocks_as(const std::optional<Blocks>& given) {
  if (!given) return std::nullopt;
  BlockSizes blocks;
  std::size_t at = 0;
  for (const auto& axis : BlockSizes::axes()) blocks.*axis.value = (*given)[at++];
  return blocks;
}

/// The operator's options, as the call has them.
template <class Op>
typename Op::Options options_of(const Call& call) {
  typename Op::Options options;
  std::size_t at = 0;
  for (const auto& each : OperatorTraits<Op>::options) each.set(options, call.options[at++]);
  return options;
}
/// Those of execution that are the operator's own; nothing else of it is set.
template <class Op>
typename Op::ExecutionOptions execution_options_of(const Call& call) {
  typename Op::ExecutionOptions execution;
  std::size_t at = OperatorTraits<Op>::options.size();
  for (const auto& each : OperatorTraits<Op>::execution_options) {
    each.set(execution, call.options[at++]);
  }
  return execution;
}

/// Checks a call and hands it to `use`, whose result it returns. At the edge of the library: memory
/// that the host does not have becomes an Error.
template <class Use>
auto with_checked(Context& context, Call call, Form form, const Use& use) {
  return dispatch::guarded(call.op->name, [&] {
    std::optional<decltype(use(std::declval<Request&>()))> result;
    const auto take = [&](Request& request) { result.emplace(use(request)); };
    call.op->behind().check(context.state(), std::move(call), form, std::ref(take));
    return std::move(*result);
  });
}

/// Runs a call that owns its results.
template <class Op>
typename Op::Result run_owned(Context& context, Pass pass, const typename Op::Inputs& inputs,
                              const typename Op::Options& options,
                              const typename Op::ExecutionOptions& execution) {
  using Traits = OperatorTraits<Op>;
  auto owned = run_owned(context, bind<Op>(pass, inputs, {}, {}, options, execution));
  typename Op::Result result;
  for (std::size_t i = 0; i < Traits::outputs.size(); ++i) {
    result.*Traits::outputs[i].owned = std::move(owned.outputs[i]);
  }
  for (std::size_t i = 0; i < Traits::gradients.size(); ++i) {
    result.*Traits::gradients[i].owned = std::move(owned.gradients[i]);
  }
  result.dispatch = std::move(owned.dispatch);
  return result;
}

}  // namespace tessera::operators
