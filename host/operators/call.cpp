// SPDX-License-Identifier: Apache-2.0
#include "host/operators/call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "host/arguments/owned.hpp"
#include "host/operators/bind.hpp"

std::string tessera::to_string(const OptionValue& value) {
  if (std::holds_alternative<Unset>(value)) return "unset";
  if (const auto* number = std::get_if<float>(&value)) return fmt::format("{}", *number);
  return fmt::format("{}", std::get<std::int64_t>(value));
}

namespace tessera::operators {
namespace {

template <class All>
auto* named(All& all, std::string_view wanted) noexcept {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == wanted; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

std::vector<ImplementationInfo> Description::implementations() const {
  return dispatch::guarded(name, [&] { return dispatch::list(behind().table()); });
}
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
bool Description::has_letter(char letter) const noexcept {
  return std::any_of(inputs.begin(), inputs.end(), [=](const auto& each) {
    return std::string_view(each.shape.text()).find(letter) != std::string_view::npos;
  });
}

const Description& description(std::string_view name) {
  if (const auto* op = named(descriptions(), name)) return *op;
  std::string names;
  for (const auto& op : descriptions()) names += (names.empty() ? "" : ", ") + std::string(op.name);
  throw Error(ErrorCode::invalid_argument,
              "there is no operator '" + std::string(name) + "'; there are: " + names);
}

std::vector<NamedValue> blocks_by_name(const Description& op, const Blocks& blocks) {
  auto named = op.block_sizes;
  for (std::size_t i = 0; i < named.size(); ++i) named[i].value = blocks[i];
  return named;
}

Call::Call(const Description& description, Pass of)
    : op(&description),
      pass(of),
      inputs(op->inputs.size()),
      outputs(op->outputs.size()),
      gradients(op->gradients.size()),
      accumulate(op->gradients.size()),
      wants(op->outputs.size()),
      wants_gradients(op->gradients.size()),
      options(op->options.size()) {
  for (std::size_t i = 0; i < options.size(); ++i) options[i] = op->options[i].standard;
  for (std::size_t i = 0; i < wants.size(); ++i) wants[i] = op->outputs[i].is_wanted;
  for (std::size_t i = 0; i < wants_gradients.size(); ++i) {
    wants_gradients[i] = op->gradients[i].is_wanted;
  }
}

bool Call::set(std::string_view name, const OptionValue& value) {
  const auto* option = op->option(name);
  if (option == nullptr) return false;
  options[static_cast<std::size_t>(option - op->options.data())] = value;
  return true;
}

Dims leading_extents(const Call& call) {
  const Dims& first = call.inputs[0].extents();
  return first.first(std::max(0, first.rank() - call.op->inputs[0].shape.rank()));
}

ProblemExtents letter_extents(const Call& call) {
  ProblemExtents extents;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const auto& shape = call.op->inputs[i].shape;
    const Dims& given = call.inputs[i].extents();
    // An axis that may be 1 says nothing of its letter.
    if (shape.repeats() || given.rank() < shape.rank()) continue;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const char letter = shape.axis(axis);
      if (letter <= '9' || extents.has(letter)) continue;
      extents[letter] = given[given.rank() - shape.rank() + axis];
    }
  }
  return extents;
}

Dims output_extents(const Call& call, std::size_t output) {
  const Description& op = *call.op;
  bool reduced = false;
  for (std::size_t i = 0; i < op.options.size(); ++i) {
    const auto& option = op.options[i];
    if (std::string_view(option.name) != "reduction") continue;
    const auto place = static_cast<std::size_t>(std::get<std::int64_t>(call.options[i]));
    reduced = std::string_view(option.choices[place]) != "none";
  }
  const ProblemExtents extents = letter_extents(call);
  return op.outputs[output].shape.extents(leading_extents(call), reduced, [&](char letter) {
    return std::max<std::int64_t>(extents[letter], 0);
  });
}

Dims output_strides(const Call& call, std::size_t output, const Dims& extents) {
  const Dims& like = call.inputs[0].strides();
  const int tokens = extents.rank() - 2, heads = extents.rank() - 3;
  if (call.op->outputs[output].layout != Layout::heads || like.rank() != extents.rank() ||
      heads < 0 || like[heads] >= like[tokens]) {
    return contiguous_strides(extents);
  }
  Dims order = extents;
  std::swap(order[heads], order[tokens]);
  Dims strides = contiguous_strides(order);
  std::swap(strides[heads], strides[tokens]);
  return strides;
}

void Call::set_block_sizes(const std::vector<NamedValue>& values) {
  auto& blocks = block_sizes.emplace(op->block_sizes.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto* given = named(values, op->block_sizes[i].name);
    blocks[i] = given != nullptr ? given->value : op->block_sizes[i].value;
  }
}

Completion run_checked(Context& context, Request& request) {
  request.drop_empty_gradients();
  const auto& table = request.call.op->behind().table();
  return Completion(dispatch::run(table, context.state().shared_from_this(), request));
}

Completion run(Context& context, Call call) {
  return with_checked(context, std::move(call), Form::views,
                      [&](Request& request) { return run_checked(context, request); });
}

Owned run_owned(Context& context, Call call) {
  return with_checked(context, std::move(call), Form::owned, [&](Request& request) {
    const Description& op = *request.call.op;
    Owned owned{.outputs = decltype(Owned::outputs)(op.outputs.size()),
                .gradients = decltype(Owned::gradients)(op.gradients.size()),
                .dispatch = {}};
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      arguments::allocate(request.call.outputs[i], owned.outputs[i], op.outputs[i].name);
    }
    for (std::size_t i = 0; i < op.gradients.size(); ++i) {
      arguments::allocate(request.call.gradients[i], owned.gradients[i], op.gradients[i].name);
    }
    auto completion = run_checked(context, request);
    completion.wait();
    owned.dispatch = completion.dispatch();
    return owned;
  });
}

Plan plan(Context& context, Call call) {
  return with_checked(context, std::move(call), Form::question, [&](Request& request) {
    request.drop_empty_gradients();
    return dispatch::plan(request.call.op->behind().table(), context.state(), request);
  });
}

std::vector<dispatch::Choice> choices(Context& context, Call call) {
  return with_checked(context, std::move(call), Form::question, [&](Request& request) {
    auto& state = context.state();
    return dispatch::choose(request.call.op->behind().table(), state, request)
        .choices(state, request);
  });
}

Dispatch foresee(Context& context, Call call) {
  return with_checked(context, std::move(call), Form::question, [&](Request& request) {
    request.drop_empty_gradients();
    auto& state = context.state();
    return dispatch::choose(request.call.op->behind().table(), state, request)
        .foresee(state, request);
  });
}

CostEstimate cost_estimate(Context& context, Call call) {
  return with_checked(context, std::move(call), Form::question, [&](Request& request) {
    auto& state = context.state();
    return dispatch::choose(request.call.op->behind().table(), state, request).cost(state, request);
  });
}

std::optional<std::string> why_unsupported(Context& context, const std::string& implementation,
                                           Call call) {
  auto& state = context.state();  // throws where it was moved from
  const auto& table = call.op->behind().table();
  dispatch::guarded(call.op->name, [&] { return dispatch::select_rows(table, {implementation}); });
  try {
    return with_checked(context, std::move(call), Form::question, [&](Request& request) {
      return dispatch::why_unsupported(table, state, request, implementation);
    });
  } catch (const Error& error) {
    // A call that is wrong in itself is served by none.
    return error.what();
  }
}

std::pair<std::vector<NamedValue>, BlockSource> infer_block_sizes(Context& context,
                                                                  const std::string& implementation,
                                                                  Call call) {
  Call asked(*call.op, call.pass);
  asked.inputs = call.inputs;
  asked.implementation = implementation;
  return with_checked(context, std::move(asked), Form::question, [&](Request& request) {
    auto& state = context.state();
    return dispatch::choose(request.call.op->behind().table(), state, request)
        .infer(state, request);
  });
}

}  // namespace tessera::operators
