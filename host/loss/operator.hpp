// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/arguments/owned.hpp"
#include "host/dispatch/host_views.hpp"
#include "host/dispatch/table.hpp"
#include "host/loss/request.hpp"
#include "host/loss/results.hpp"
#include "host/loss/validate.hpp"
#include "host/operators/options.hpp"
#include "host/operators/request.hpp"
#include "tessera/cost_estimate.hpp"

/// What every loss operator is made of behind its public functions (host/loss/api.inc).
namespace tessera::loss {

using arguments::Form;

/// A validated call of a loss operator.
template <class Op>
struct OperatorRequest : operators::Request<Op> {
  LossRequest loss{};
  typename Op::Options options{};  ///< with those of the loss, which `loss` has too
  typename Op::Outputs outputs{};  ///< those that the operator has besides the loss's
  /// forward_partial only: what rows have besides `loss.partial`, as [b, words]; empty: nothing.
  MutableView own_partial{};

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
//   /// Where a loss has more terms than nll and z-loss: what nll is multiplied by, from the
//   /// options. At 0 labels may be left out.
//   static float nll_weight(const Op::Options&);
//   /// Where forward_partial has more of a row than tessera::Partial: that, of f32 words.
//   using PartialRow = ...;
//   static std::vector<PartialRow>& own_rows(const OperatorRequest<Op>&, PartialResult&);
//   /// Cost of a request that forms each intermediate value once.
//   static CostEstimate cost(const OperatorRequest<Op>&, const Op::BlockSizes&);
//   /// The rows of the table, in order. opencl() is not called where OpenCL is compiled out.
//   static dispatch::Table<OperatorRequest<Op>> opencl();
//   static dispatch::Table<OperatorRequest<Op>> host();
// };

/// The view of an output, by its place in OperatorTraits.
template <class Op, class Request>
auto& output_at(Request& request, std::size_t i) {
  if (i < loss_output_count) return request.loss.outputs.*loss_outputs[i].view;
  return request.outputs.*OperatorTraits<Op>::outputs[i].view;
}

/// Calls `use(output, view)` for each output that an operator has besides the loss's.
template <class Op, class Request, class Use>
void for_own_outputs(Request& request, const Use& use) {
  for (std::size_t i = loss_output_count; i < OperatorTraits<Op>::outputs.size(); ++i) {
    use(OperatorTraits<Op>::outputs[i], output_at<Op>(request, i));
  }
}

/// The outputs that a request gives, then its gradients.
template <class Op>
std::vector<arguments::NamedView> output_views(const OperatorRequest<Op>& request) {
  std::vector<arguments::NamedView> views;
  for (std::size_t i = 0; i < OperatorTraits<Op>::outputs.size(); ++i) {
    const MutableView& view = output_at<Op>(request, i);
    if (view) views.push_back({OperatorTraits<Op>::outputs[i].name, view});
  }
  if (request.loss.partial) views.push_back({"partial", request.loss.partial});
  if (request.own_partial) views.push_back({"own_partial", request.own_partial});
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
constexpr std::size_t own_inputs =
    OperatorTraits<Op>::inputs.size() - loss_inputs<typename Op::Inputs>.size();

/// Where among the inputs of a loss each of those is that an operator has; found at compile time,
/// since tiny calls would spend microseconds on names.
template <class Op>
constexpr auto places_of_loss_inputs = [] {
  constexpr auto& own = loss_inputs<typename Op::Inputs>;
  std::array<std::size_t, own.size()> places{};
  for (std::size_t i = 0; i < own.size(); ++i) {
    while (std::string_view(loss_inputs<LossInputs>[places[i]].name) != own[i].name) ++places[i];
  }
  return places;
}();

/// The inputs that a loss has of an operator's.
template <class Op>
LossInputs loss_inputs_of(const typename Op::Inputs& inputs) {
  LossInputs result;
  for (std::size_t i = 0; i < places_of_loss_inputs<Op>.size(); ++i) {
    result.*loss_inputs<LossInputs>[places_of_loss_inputs<Op>[i]].view =
        inputs.*loss_inputs<typename Op::Inputs>[i].view;
  }
  return result;
}

/// Announces the outputs that an operator has besides the loss's.
template <class Op>
void check_own_outputs(arguments::Checks& checks, OperatorRequest<Op>& request,
                       const arguments::Source& source) {
  const Pass pass = request.loss.pass;
  const bool writes = pass == Pass::forward || pass == Pass::value_and_grad;
  for_own_outputs<Op>(request, [&](const auto& output, MutableView& view) {
    if (!writes) return checks.refuse(output.name, view, "this pass writes no loss outputs");
    checks.output(output.name, view, output.types);
    checks.shape(output.name, view, described(output, request.loss).extents(), source);
  });
}

/// Describes those that are wanted, without memory yet.
template <class Op>
void describe_own_outputs(OperatorRequest<Op>& request, const Wants& wants) {
  for_own_outputs<Op>(request, [&](const auto& output, MutableView& view) {
    if (output.wanted != nullptr && !(wants.*output.wanted)) return;
    view = described(output, request.loss);
  });
}

/// Gives them the memory of new tensors of `result`.
template <class Op>
void allocate_own_outputs(OperatorRequest<Op>& request, typename Op::Result& result) {
  for_own_outputs<Op>(request, [&](const auto& output, MutableView& view) {
    arguments::allocate(view, result.*output.owned, output.name);
  });
}

/// Gives forward_partial's rows memory: `words`, which `read_partial` reads, and that of `result`
/// for what the operator has besides.
template <class Op, class PartialResult>
void allocate_partials(OperatorRequest<Op>& request, PartialResult& result,
                       std::vector<PartialWords>& words) {
  allocate_partial(request.loss, result, words);
  if constexpr (requires { HostTraits<Op>::own_rows(request, result); }) {
    request.own_partial = allocate_rows(request.loss, HostTraits<Op>::own_rows(request, result));
  }
}

/// Describes them, without memory yet.
template <class Op>
void describe_partials(OperatorRequest<Op>& request) {
  describe_partial(request.loss);
  if constexpr (requires { typename HostTraits<Op>::PartialRow; }) {
    request.own_partial = view_of<typename HostTraits<Op>::PartialRow>(nullptr, request.loss.b);
  }
}

/// What an operator with more terms multiplies nll by.
template <class Op>
std::optional<float> nll_weight_of(const typename Op::Options& options) {
  if constexpr (requires { HostTraits<Op>::nll_weight(options); }) {
    return HostTraits<Op>::nll_weight(options);
  } else {
    return std::nullopt;
  }
}

/// Checks a call and returns it in its normal form. Throws Error before anything is touched.
/// Form::owned: `outputs` and `gradients` are described by `options.wants`, without memory yet.
template <class Op>
OperatorRequest<Op> make_request(const ContextState& state, Pass pass,
                                 const typename Op::Inputs& inputs,
                                 const typename Op::Outputs& outputs,
                                 const typename Op::Gradients& gradients,
                                 const typename Op::Options& options,
                                 const typename Op::ExecutionOptions& execution, Form form) {
  OperatorRequest<Op> r;
  r.inputs = inputs;
  r.options = options;
  r.outputs = outputs;
  r.gradients = gradients;
  r.execution = execution;
  r.loss.pass = pass;
  arguments::Checks checks(&state, r.operation(), form);
  const auto symbols = operators::check_inputs(checks, r, own_inputs<Op>);
  operators::check_options(checks, OperatorTraits<Op>::options, options);
  operators::check_options(checks, OperatorTraits<Op>::execution_options, execution);
  auto& in = r.inputs;
  r.loss = check_loss(checks, pass, loss_inputs_of<Op>(inputs), outputs, loss_options(options),
                      nll_weight_of<Op>(options), symbols.leading(), symbols.extent('V'),
                      symbols.leading_source());
  check_own_outputs(checks, r, symbols.leading_source());
  // As they are read.
  in.dloss = r.loss.dloss;
  in.lse = r.loss.lse;
  operators::check_gradients(checks, r, pass);
  checks.execution(r.execution);
  auto& bound = r.execution.workspace_bytes;
  if (const auto& lent = r.execution.workspace) {
    const auto bytes = static_cast<std::size_t>(dispatch::footprint_bytes(lent));
    bound = std::min(bound.value_or(bytes), bytes);
  }
  // Sizes are signed from here on; what is beyond them bounds nothing.
  if (bound) bound = std::min(*bound, static_cast<std::size_t>(INT64_MAX));
  HostTraits<Op>::check(checks, r);

  bool gives_outputs = any(outputs);
  for_own_outputs<Op>(r, [&](const auto&, const MutableView& view) {
    gives_outputs = gives_outputs || static_cast<bool>(view);
  });
  const bool nothing_given = !gives_outputs && !operators::wants_any_gradient(r);
  if (form == Form::owned || (form == Form::question && nothing_given)) {
    const Wants& wants = loss_options(options).wants;
    if (pass == Pass::forward || pass == Pass::value_and_grad) {
      describe_outputs(r.loss);
      describe_own_outputs(r, wants);
    }
    if (has_gradients(pass)) operators::describe_gradients(r, wants);
  }
  if (pass == Pass::forward_partial) describe_partials(r);
  operators::require_gradients(checks, r, pass);
  if (pass == Pass::forward && form != Form::owned && !gives_outputs && !any(r.loss.outputs)) {
    checks.fail("no output is asked for; give at least one view");
  }
  operators::check_overlaps(checks, r);
  if (form != Form::question) check_targets(checks, r.loss, r.execution.wait_for);
  return r;
}

/// The rows of an operator's table, in order. Never destroyed: destructors of static objects may
/// call, in whatever order those end.
template <class Op>
const dispatch::Table<OperatorRequest<Op>>& table() {
  static const auto& rows = *new auto([] {
    dispatch::Table<OperatorRequest<Op>> result;
#ifdef TESSERA_OPENCL
    result = HostTraits<Op>::opencl();
#else
    result.push_back(dispatch::left_out<OperatorRequest<Op>>(
        "opencl", "this library was built without OpenCL (TESSERA_OPENCL=OFF)"));
#endif
    for (auto& row : HostTraits<Op>::host()) result.push_back(std::move(row));
    return result;
  }());
  return rows;
}

}  // namespace tessera::loss
