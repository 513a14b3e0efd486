// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "host/dispatch/table.hpp"
#include "host/loss/request.hpp"
#include "host/loss/results.hpp"
#include "host/loss/validate.hpp"
#include "host/operators/request.hpp"
#include "tessera/cost_estimate.hpp"

/// What every loss operator is made of behind its public functions (host/loss/api.inc).
namespace tessera::loss {

using arguments::Form;

/// A validated call of a loss operator.
template <class Op>
struct OperatorRequest : operators::Request<Op> {
  LossRequest loss{};

  std::string operation() const {
    // Piece by piece: g++ 12 takes a sum of them for an overflow under -fsanitize=thread.
    std::string text = OperatorTraits<Op>::name;
    text += '.';
    text += to_string(loss.pass);
    return text;
  }
  std::string output_names() const;  ///< "loss, lse, grad_w": the views given, for messages
};

/// What an operator adds to its OperatorTraits behind the public face; specialised in
/// host/<operator>/request.hpp.
template <class Op>
struct HostTraits;
// struct HostTraits<Op> {
//   /// Checks that follow from nothing in OperatorTraits.
//   static void check(const arguments::Checks&, const OperatorRequest<Op>&);
//   /// Cost of a request that forms each intermediate value once.
//   static CostEstimate cost(const OperatorRequest<Op>&, const Op::BlockSizes&);
//   /// The rows of the table, in order. opencl() is not called where OpenCL is compiled out.
//   static dispatch::Table<OperatorRequest<Op>> opencl();
//   static dispatch::Table<OperatorRequest<Op>> host();
// };

/// The loss's outputs that a request gives, then its gradients.
template <class Op>
std::vector<arguments::NamedView> output_views(const OperatorRequest<Op>& request) {
  std::vector<arguments::NamedView> views;
  for (const auto& output : OperatorTraits<Op>::outputs) {
    const auto& view = request.loss.outputs.*output.view;
    if (view) views.push_back({output.name, view});
  }
  if (request.loss.partial) views.push_back({"partial", request.loss.partial});
  for (const auto& gradient : operators::gradient_views(request)) views.push_back(gradient);
  return views;
}

template <class Op>
std::string OperatorRequest<Op>::output_names() const {
  return arguments::names(output_views(*this));
}

/// Each input and output of a request once, and what it adds to read too.
template <class Op>
std::int64_t ideal_bytes(const OperatorRequest<Op>& request) {
  std::int64_t bytes =
      arguments::ideal_bytes(operators::input_views(request), output_views(request));
  const auto& gradients = OperatorTraits<Op>::gradients;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!OperatorTraits<Op>::accumulates(request.gradients, i)) continue;
    bytes = arguments::saturating_sum(
        bytes, arguments::distinct_bytes(request.gradients.*gradients[i].view));
  }
  return bytes;
}

/// Inputs that an operator has besides those of every loss.
template <class Op>
constexpr std::size_t own_inputs = OperatorTraits<Op>::inputs.size() - loss_input_count;

/// Checks a call and returns it in its normal form. Throws Error before anything is touched.
/// Form::owned: `outputs` and `gradients` are described by `options.wants`, without memory yet.
template <class Op>
OperatorRequest<Op> make_request(const ContextState& state, Pass pass,
                                 const typename Op::Inputs& inputs, const Outputs& outputs,
                                 const typename Op::Gradients& gradients,
                                 const LossOptions& options,
                                 const typename Op::ExecutionOptions& execution, Form form) {
  OperatorRequest<Op> r;
  r.inputs = inputs;
  r.gradients = gradients;
  r.execution = execution;
  r.loss.pass = pass;
  arguments::Checks checks(&state, r.operation(), form);
  const auto symbols = operators::check_inputs(checks, r, own_inputs<Op>);
  auto& in = r.inputs;
  LossInputs of_loss;
  for (std::size_t i = 0; i < loss_input_count; ++i) {
    of_loss.*loss_inputs<LossInputs>[i].view =
        in.*OperatorTraits<Op>::inputs[own_inputs<Op> + i].view;
  }
  r.loss = check_loss(checks, pass, of_loss, outputs, options, symbols.leading(),
                      symbols.extent('V'), symbols.leading_source());
  // As they are read.
  in.dloss = r.loss.dloss;
  in.lse = r.loss.lse;
  operators::check_gradients(checks, r, pass);
  checks.execution(r.execution);
  HostTraits<Op>::check(checks, r);

  const bool nothing_given = !any(outputs) && !operators::wants_any_gradient(r);
  if (form == Form::owned || (form == Form::question && nothing_given)) {
    if (pass == Pass::forward || pass == Pass::value_and_grad) describe_outputs(r.loss);
    if (has_gradients(pass)) operators::describe_gradients(r, options.wants);
  }
  if (pass == Pass::forward_partial) describe_partial(r.loss);
  operators::require_gradients(checks, r, pass);
  if (pass == Pass::forward && !any(r.loss.outputs)) {
    checks.fail("no output is asked for; give at least one view");
  }
  operators::check_overlaps(checks, r);
  if (form != Form::question) check_targets(checks, r.loss, r.execution.wait_for);
  return r;
}

/// The rows of an operator's table, in order.
template <class Op>
const dispatch::Table<OperatorRequest<Op>>& table() {
  static const auto rows = [] {
    dispatch::Table<OperatorRequest<Op>> result;
#ifdef TESSERA_OPENCL
    result = HostTraits<Op>::opencl();
#else
    result.push_back(dispatch::left_out<OperatorRequest<Op>>(
        "opencl", "this library was built without OpenCL (TESSERA_OPENCL=OFF)"));
#endif
    for (auto& row : HostTraits<Op>::host()) result.push_back(std::move(row));
    return result;
  }();
  return rows;
}

}  // namespace tessera::loss
