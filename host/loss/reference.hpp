// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/loss/operator.hpp"
#include "host/loss/reference_loss.hpp"
#include "host/loss/targets.hpp"

/// The implementation `reference` of any loss operator: reads the arguments into vectors of double,
/// calls the oracle, and writes what it says.
namespace tessera::loss {

/// What an operator says of its reference.
template <class Op>
struct Reference {
  const char* description;
  /// Why it does not take a request, besides what holds for every loss; nothing: it does.
  std::optional<std::string> (*refuses)(const OperatorRequest<Op>&);
  /// What the oracle's arrays take.
  std::int64_t (*workspace_bytes)(const OperatorRequest<Op>&);
  /// Fills the problem's own half: all but labels, weights and cotangents.
  void (*read)(const OperatorRequest<Op>&, dispatch::HostViews&, oracle::Problem&);
  /// What the oracle calls each gradient, in the order of OperatorTraits.
  std::array<std::vector<double> oracle::Gradients::*, OperatorTraits<Op>::gradients.size()>
      gradients;
  /// What it calls each output that the operator has besides the loss's.
  std::array<std::vector<double> oracle::Values::*,
             OperatorTraits<Op>::outputs.size() - loss_output_count>
      own_outputs{};
  /// What it calls the rows of forward_partial that are the operator's own; nullptr: there are
  /// none.
  std::vector<double> oracle::Values::*own_partial = nullptr;
};

/// What it reports; throws Error workspace_too_small.
template <class Op>
void describe(const Reference<Op>& reference, const OperatorRequest<Op>& request,
              Dispatch& dispatch) {
  using BlockSizes = typename Op::BlockSizes;
  dispatch.implementation = "reference";
  dispatch.device = "host";
  dispatch.schedule = "textbook";
  dispatch.workspace_bytes = reference.workspace_bytes(request);
  check_fixed_workspace("reference, which materialises everything in double,",
                        request.execution.workspace_bytes, request.execution.workspace,
                        dispatch.workspace_bytes);
  // The textbook has no blocks; any are legal and none is used.
  const auto& given = request.execution.block_sizes;
  dispatch.block_source = given ? BlockSource::caller : BlockSource::fallback;
  dispatch.block_sizes = to_named(given.value_or(BlockSizes::get_default()));
}

template <class Op>
std::unique_ptr<Completion::State> run_reference(const Reference<Op>& reference,
                                                 const std::shared_ptr<ContextState>& state,
                                                 const OperatorRequest<Op>& request,
                                                 dispatch::Attempt& attempt) {
  describe(reference, request, attempt.dispatch);
  if (state->device) state->device->wait_for(request.execution.wait_for);
  oracle::Problem problem;
  std::string bad;
  {
    dispatch::HostViews views(*state, request.execution.queue);
    problem = reference_problem(request.loss, views, bad);
    reference.read(request, views, problem);
    views.finish();
  }
  oracle::Values values;
  oracle::Gradients gradients;
  if (request.loss.wants_values()) values = oracle::forward(problem);
  if (has_gradients(request.loss.pass)) gradients = oracle::backward(problem);

  // The inputs are unmapped by now: an output may be an input's view, or share its memory object.
  dispatch::HostViews views(*state, request.execution.queue);
  std::vector<const MutableView*> writes = {&request.loss.partial, &request.own_partial};
  for (const auto& output : loss_outputs) writes.push_back(&(request.loss.outputs.*output.view));
  for_own_outputs<Op>(request,
                      [&](const auto&, const MutableView& view) { writes.push_back(&view); });
  const auto& wanted = OperatorTraits<Op>::gradients;
  for (const auto& gradient : wanted) writes.push_back(&(request.gradients.*gradient.view));
  attempt.outputs_touched = true;
  views.reserve({}, writes);
  if (request.loss.wants_values()) {
    write_values(request.loss, values, views);
    std::size_t at = 0;
    for_own_outputs<Op>(request, [&](const auto&, const MutableView& view) {
      write_vector(view, values.*reference.own_outputs[at++], views);
    });
    if (request.own_partial) {
      write_vector(request.own_partial, values.*reference.own_partial, views);
    }
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const MutableView& target = request.gradients.*wanted[i].view;
    if (!target) continue;
    write_matrix(views.write(target), gradients.*reference.gradients[i],
                 OperatorTraits<Op>::accumulates(request.gradients, i));
  }
  views.finish();
  return finished(bad);
}

template <class Op>
dispatch::Implementation<OperatorRequest<Op>> reference_row(const Reference<Op>& reference) {
  using Request = OperatorRequest<Op>;
  dispatch::Implementation<Request> row;
  row.name = "reference";
  row.description = reference.description;
  row.by_default = false;
  row.why_unsupported = [=](ContextState&, const Request& request) {
    auto reason = reference_refusal(request.loss);
    return reason ? reason : reference.refuses(request);
  };
  row.run = [=](const std::shared_ptr<ContextState>& state, const Request& request,
                dispatch::Attempt& attempt) {
    return run_reference(reference, state, request, attempt);
  };
  row.plan = [=](ContextState&, const Request& request) {
    Plan plan;
    describe(reference, request, plan.dispatch);
    plan.workspace_bytes = plan.minimum_workspace_bytes = plan.dispatch.workspace_bytes;
    return plan;
  };
  return row;
}

}  // namespace tessera::loss
