// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "host/arguments/bytes.hpp"
#include "host/operators/symbols.hpp"
#include "tessera/operator.hpp"

/// What every operator makes of a call, from its OperatorTraits.
namespace tessera::operators {

/// A validated call, the same for every implementation: shapes agree, types are legal, writable
/// views do not overlap anything, block sizes are positive. Operators of one kind add to it what
/// they have in common (loss::OperatorRequest).
template <class Op>
struct Request {
  using Operator = Op;
  using Blocks = typename Op::BlockSizes;

  typename Op::Inputs inputs{};               ///< every view in its normal shape
  typename Op::Gradients gradients{};         ///< a view for each gradient that is wanted
  typename Op::ExecutionOptions execution{};  ///< block_sizes already merged with block_size

  const std::vector<std::string>& implementation_names() const {
    return execution.implementation.names();
  }
  const std::vector<NamedValue>& knobs() const { return execution.knobs; }
};

/// The inputs of `inputs` that are given.
template <class Op>
std::vector<arguments::NamedView> input_views(const Request<Op>& request) {
  std::vector<arguments::NamedView> views;
  for (const auto& input : OperatorTraits<Op>::inputs) {
    if (request.inputs.*input.view) views.push_back({input.name, request.inputs.*input.view});
  }
  return views;
}

/// The gradients that are wanted.
template <class Op>
std::vector<arguments::NamedView> gradient_views(const Request<Op>& request) {
  std::vector<arguments::NamedView> views;
  for (const auto& gradient : OperatorTraits<Op>::gradients) {
    const auto& view = request.gradients.*gradient.view;
    if (view) views.push_back({gradient.name, view});
  }
  return views;
}

template <class Op>
bool wants_any_gradient(const Request<Op>& request) {
  for (const auto& gradient : OperatorTraits<Op>::gradients) {
    if (request.gradients.*gradient.view) return true;
  }
  return false;
}

/// Announces the first `count` inputs, those of which no group of operators takes care, and binds
/// their shapes. The request's views must stay where they are.
template <class Op>
Symbols check_inputs(arguments::Checks& checks, const Request<Op>& request, std::size_t count) {
  const auto& inputs = OperatorTraits<Op>::inputs;
  for (std::size_t i = 0; i < count; ++i) {
    const View& view = request.inputs.*inputs[i].view;
    if (inputs[i].reads == Reads::always && !view) {
      checks.fail(std::string(inputs[i].name) + " is not given; it has shape " +
                  inputs[i].shape.text());
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    checks.input(inputs[i].name, request.inputs.*inputs[i].view, inputs[i].types);
  }
  Symbols symbols;
  for (std::size_t i = 0; i < count; ++i) {
    symbols.take(checks, inputs[i].name, request.inputs.*inputs[i].view, inputs[i].shape);
  }
  return symbols;
}

/// Announces the gradients and compares their shapes with those of their inputs.
template <class Op>
void check_gradients(arguments::Checks& checks, Request<Op>& request, Pass pass) {
  const auto& gradients = OperatorTraits<Op>::gradients;
  if (!has_gradients(pass)) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      checks.refuse(gradients[i].name, request.gradients.*gradients[i].view,
                    "this pass computes no gradients");
      if (OperatorTraits<Op>::accumulates(request.gradients, i)) {
        checks.fail("accumulate is set, but this pass computes no gradients");
      }
    }
    return;
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto& gradient = gradients[i];
    if (request.gradients.*gradient.view && !(request.inputs.*gradient.of)) {
      const std::string input = input_of(gradient).name;
      checks.fail(std::string(gradient.name) + " is asked for but no " + input +
                  " is given; give the " + input + " or drop the gradient");
    }
    // One that may lie in its input's place is written once; others are sums, formed in place.
    const bool is_read =
        OperatorTraits<Op>::accumulates(request.gradients, i) || !gradient.in_place;
    checks.output(gradient.name, request.gradients.*gradient.view, ElementTypes::floating, is_read);
  }
  for (const auto& gradient : gradients) {
    const auto& input = input_of(gradient);
    const View& of = request.inputs.*gradient.of;
    if (!of) continue;
    checks.shape(gradient.name, request.gradients.*gradient.view, of.extents(),
                 {"the shape of ", nullptr, input.name});
  }
}

/// Describes the gradients that a call which owns its results returns, without memory yet. One
/// whose input is a matrix without leading axes lies in memory as that does.
template <class Op>
void describe_gradients(Request<Op>& request, const Wants& wants) {
  for (const auto& gradient : OperatorTraits<Op>::gradients) {
    const View& of = request.inputs.*gradient.of;
    if (!of || (gradient.wanted != nullptr && !(wants.*gradient.wanted))) continue;
    const auto& shape = input_of(gradient).shape;
    Dims strides;
    if (!shape.has_leading() && of.rank() == 2 && of.strides()[0] < of.strides()[1]) {
      strides = {1, of.extents()[0]};
    }
    request.gradients.*gradient.view =
        MutableView::host(nullptr, gradient.type.value_or(of.dtype()), of.extents(), strides);
  }
}

/// Error where a pass that computes gradients is asked for none.
template <class Op>
void require_gradients(const arguments::Checks& checks, const Request<Op>& request, Pass pass) {
  if (!has_gradients(pass) || wants_any_gradient(request)) return;
  std::string names;
  for (const auto& gradient : OperatorTraits<Op>::gradients) {
    names += (names.empty() ? "" : ", ") + std::string(gradient.name);
  }
  checks.fail("no gradient is asked for; give a view or a want for " + names + ", or call forward");
}

/// Error where an output touches an input or another output, but for a gradient in place of its
/// input; and where such a one is to be added to what it comes from.
template <class Op>
void check_overlaps(const arguments::Checks& checks, const Request<Op>& request) {
  const char* in_place = nullptr;
  const char* in_place_of = nullptr;
  const auto& gradients = OperatorTraits<Op>::gradients;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].in_place) continue;
    in_place = gradients[i].name;
    in_place_of = input_of(gradients[i]).name;
    if (OperatorTraits<Op>::accumulates(request.gradients, i) &&
        arguments::same_memory(request.gradients.*gradients[i].view,
                               request.inputs.*gradients[i].of)) {
      checks.fail(std::string("accumulate is set and ") + in_place + " is the view " + in_place_of +
                  "; a gradient cannot be added to the values it comes from, give it memory of its "
                  "own");
    }
  }
  checks.overlaps(in_place, in_place_of);
}

}  // namespace tessera::operators
