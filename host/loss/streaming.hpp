// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/loss/operator.hpp"
#include "host/loss/streaming_rows.hpp"

/// The implementation `eigen` of any loss operator: maps the arguments to host memory, lays out the
/// tables of rows, and calls the operator's streaming walk (reference/streaming).
namespace tessera::loss {

/// The same request over host views. All of them are mapped at once, as they may share memory.
template <class Op>
OperatorRequest<Op> on_host(const OperatorRequest<Op>& request, dispatch::HostViews& views) {
  OperatorRequest<Op> result = request;
  auto& l = result.loss;
  std::vector<View*> reads;
  for (const auto& input : loss_inputs<LossRequest>) reads.push_back(&(l.*input.view));
  for (std::size_t i = 0; i < own_inputs<Op>; ++i) {
    reads.push_back(&(result.inputs.*OperatorTraits<Op>::inputs[i].view));
  }
  std::vector<MutableView*> writes = {&l.partial, &result.own_partial};
  for (const auto& output : loss_outputs) writes.push_back(&(l.outputs.*output.view));
  for_own_outputs<Op>(result, [&](const auto&, MutableView& view) { writes.push_back(&view); });
  for (const auto& gradient : OperatorTraits<Op>::gradients) {
    writes.push_back(&(result.gradients.*gradient.view));
  }
  views.reserve({reads.begin(), reads.end()}, {writes.begin(), writes.end()});
  for (View* view : reads) *view = views.read(*view);
  for (MutableView* view : writes) *view = views.write(*view);
  return result;
}

/// What an operator's walk gets.
template <class Op>
struct StreamingCall {
  const OperatorRequest<Op>& request;  ///< over host views
  const StreamingRows& rows;
  const streaming::Environment& environment;
  streaming::Arena& arena;  ///< for tables of its own
  void* workspace;          ///< whose front the arena has handed out

  /// The rest of the workspace, for the walk. Tables end on a cache line, so it starts on one.
  void* scratch() const { return static_cast<char*>(workspace) + arena.used(); }
};

/// What an operator says of its streaming implementation; `Plan` is what its walk plans.
template <class Op, class Plan>
struct Streaming {
  const char* description;
  /// Throws Error workspace_too_small.
  Plan (*make_plan)(ContextState&, const OperatorRequest<Op>&);
  /// Fills in schedule, block sizes of its own choice, knobs and workspace.
  typename Op::BlockSizes (*describe)(const OperatorRequest<Op>&, const Plan&, Dispatch&);
  /// The least workspace that a call of this shape accepts.
  std::int64_t (*minimum_bytes)(ContextState&, const OperatorRequest<Op>&);
  /// Does the walk.
  void (*run)(const StreamingCall<Op>&, const Plan&);
  /// What a plan costs; nullptr: what the operator says of the block sizes.
  CostEstimate (*cost)(const OperatorRequest<Op>&, const Plan&) = nullptr;
};

template <class Op, class Plan>
void describe(const Streaming<Op, Plan>& walk, const OperatorRequest<Op>& request, const Plan& plan,
              Dispatch& dispatch) {
  dispatch.implementation = "eigen";
  dispatch.device = "host";
  const auto chosen = walk.describe(request, plan, dispatch);
  const auto& given = request.execution.block_sizes;
  dispatch.block_source = given ? BlockSource::caller : BlockSource::heuristic;
  dispatch.block_sizes = to_named(given.value_or(chosen));
}

template <class Op, class Plan>
std::unique_ptr<Completion::State> run_streaming(const Streaming<Op, Plan>& walk,
                                                 const std::shared_ptr<ContextState>& state,
                                                 const OperatorRequest<Op>& request,
                                                 dispatch::Attempt& attempt) {
  const auto plan = walk.make_plan(*state, request);
  describe(walk, request, plan, attempt.dispatch);
  if (state->device) state->device->wait_for(request.execution.wait_for);

  dispatch::HostViews views(*state, request.execution.queue);
  const auto mapped = on_host(request, views);
  const StreamingWorkspace workspace(*state, views, request.execution.workspace,
                                     attempt.dispatch.workspace_bytes);
  streaming::Arena arena(workspace.data());
  const StreamingRows rows(mapped.loss, arena);
  const auto threads = environment(*state);

  attempt.outputs_touched = true;
  walk.run({mapped, rows, threads, arena, workspace.data()}, plan);
  const auto& gradients = OperatorTraits<Op>::gradients;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const MutableView& view = mapped.gradients.*gradients[i].view;
    if (!view || !input_of(gradients[i]).shape.has_leading()) continue;
    rows.fill_other_rows(view, OperatorTraits<Op>::accumulates(mapped.gradients, i), threads);
  }
  if (mapped.loss.wants_values()) rows.write_values();
  auto completion = rows.completion();
  views.finish();
  return completion;
}

template <class Op, class Plan>
dispatch::Implementation<OperatorRequest<Op>> streaming_row(const Streaming<Op, Plan>& walk) {
  using Request = OperatorRequest<Op>;
  dispatch::Implementation<Request> row;
  row.name = "eigen";
  row.description = walk.description;
  row.why_unsupported = [](ContextState&, const Request&) { return std::optional<std::string>(); };
  row.run = [=](const std::shared_ptr<ContextState>& state, const Request& request,
                dispatch::Attempt& attempt) {
    return run_streaming(walk, state, request, attempt);
  };
  row.plan = [=](ContextState& state, const Request& request) {
    tessera::Plan result;
    describe(walk, request, walk.make_plan(state, request), result.dispatch);
    result.workspace_bytes = result.dispatch.workspace_bytes;
    result.minimum_workspace_bytes =
        std::min(walk.minimum_bytes(state, request), result.workspace_bytes);
    return result;
  };
  if (walk.cost != nullptr) {
    row.cost = [=](ContextState& state, const Request& request) {
      return walk.cost(request, walk.make_plan(state, request));
    };
  }
  return row;
}

}  // namespace tessera::loss
