// SPDX-License-Identifier: Apache-2.0
#include "host/operators/call.hpp"

#include <algorithm>
#include <type_traits>

#include "tessera/error.hpp"
#include "tessera/operators.hpp"

namespace tessera::operators {
namespace {

template <class All>
auto* named(All& all, std::string_view wanted) noexcept {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == wanted; });
  return found == all.end() ? nullptr : &*found;
}

template <class Operator>
Description describe() {
  using Traits = OperatorTraits<Operator>;
  Description op{.name = Traits::name,
                 .passes = {Traits::passes.begin(), Traits::passes.end()},
                 .inputs = {},
                 .outputs = {},
                 .gradients = {},
                 .options = {},
                 .block_sizes = {},
                 .implementations = [] { return Traits::implementations(); }};
  for (const auto& each : Traits::inputs) {
    op.inputs.push_back({each.name, each.shape, each.types, each.reads});
  }
  for (const auto& each : Traits::outputs)
    op.outputs.push_back({each.name, each.shape, each.types});
  for (const auto& each : Traits::gradients) {
    const auto of = static_cast<std::size_t>(&input_of(each) - Traits::inputs.data());
    op.gradients.push_back({each.name, of, each.type, each.in_place});
  }
  const auto add_options = [&](const auto& options, const auto& defaults) {
    for (const auto& each : options) {
      op.options.push_back({each.name, each.help, each.value(defaults), each.range, each.choices});
    }
  };
  add_options(Traits::options, typename Operator::Options());
  add_options(Traits::execution_options, typename Operator::ExecutionOptions());
  for (const auto& axis : Operator::BlockSizes::axes()) op.block_sizes.push_back(axis.name);
  return op;
}

/// What `use` returns for the call's operator, given the call in its types.
template <class Use>
auto with_types(const Call& call, const Use& use) {
  std::optional<std::invoke_result_t<Use, Typed<std::tuple_element_t<0, Operators>>>> result;
  for_each_operator([&]<class Operator>(std::type_identity<Operator>) {
    if (call.op->name == OperatorTraits<Operator>::name) {
      result.emplace(use(Typed<Operator>(call)));
    }
  });
  return std::move(*result);
}

}  // namespace

const Input* Description::input(std::string_view wanted) const noexcept {
  return named(inputs, wanted);
}
const Option* Description::option(std::string_view wanted) const noexcept {
  return named(options, wanted);
}
bool Description::has(Pass pass) const noexcept {
  return std::find(passes.begin(), passes.end(), pass) != passes.end();
}
bool Description::has_weights() const noexcept {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const auto& each) { return each.is_weight(); });
}
bool Description::has_hidden() const noexcept {
  return std::any_of(inputs.begin(), inputs.end(), [](const auto& each) {
    return std::string_view(each.shape.text()).find('H') != std::string_view::npos;
  });
}

const std::vector<Description>& descriptions() {
  // Never destroyed: destructors of static objects may call.
  static const auto& all = *new auto([] {
    std::vector<Description> result;
    for_each_operator([&]<class Operator>(std::type_identity<Operator>) {
      result.push_back(describe<Operator>());
    });
    return result;
  }());
  return all;
}

const Description& description(std::string_view name) {
  if (const auto* op = named(descriptions(), name)) return *op;
  std::string names;
  for (const auto& op : descriptions()) names += (names.empty() ? "" : ", ") + std::string(op.name);
  throw Error(ErrorCode::invalid_argument,
              "there is no operator '" + std::string(name) + "'; there are: " + names);
}

Call::Call(const Description& description, Pass of)
    : op(&description),
      pass(of),
      inputs(op->inputs.size()),
      outputs(op->outputs.size()),
      gradients(op->gradients.size()),
      accumulate(op->gradients.size()) {
  for (const auto& option : op->options) options.push_back(option.standard);
}

bool Call::set(std::string_view name, const OptionValue& value) {
  const auto* option = op->option(name);
  if (option == nullptr) return false;
  options[static_cast<std::size_t>(option - op->options.data())] = value;
  return true;
}

Completion run(Context& context, const Call& call) {
  return with_types(call, [&]<class Operator>(const Typed<Operator>& t) {
    return tessera::run<Operator>(context, call.pass, t.inputs, t.outputs, t.gradients, t.options,
                                  t.execution);
  });
}

// The operator's functions are found beside its Inputs.
Plan plan(Context& context, const Call& call) {
  return with_types(call, [&](const auto& t) {
    return plan(context, call.pass, t.inputs, t.outputs, t.gradients, t.options, t.execution);
  });
}

CostEstimate cost_estimate(Context& context, const Call& call) {
  return with_types(call, [&](const auto& t) {
    return cost_estimate(context, call.pass, t.inputs, t.outputs, t.gradients, t.options,
                         t.execution);
  });
}

std::optional<std::string> why_unsupported(Context& context, const std::string& implementation,
                                           const Call& call) {
  return with_types(call, [&](const auto& t) {
    return why_unsupported(context, implementation, call.pass, t.inputs, t.outputs, t.gradients,
                           t.options, t.execution);
  });
}

std::pair<std::vector<NamedValue>, BlockSource> infer_block_sizes(Context& context,
                                                                  const std::string& implementation,
                                                                  const Call& call) {
  return with_types(call, [&](const auto& t) {
    const auto [blocks, source] = infer_block_sizes(context, implementation, call.pass, t.inputs);
    return std::pair(to_named(blocks), source);
  });
}

}  // namespace tessera::operators
