// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/loss/request.hpp"
#include "host/loss/streaming_rows.hpp"

/// The implementation `eigen` of any loss operator: maps the arguments to host memory, lays out the
/// tables of rows, and calls the operator's streaming walk (reference/streaming).
namespace tessera::loss {

/// What an operator's walk gets.
struct StreamingCall {
  const LossRequest& request;  ///< over host views
  const StreamingRows& rows;
  const streaming::Environment& environment;
  streaming::Arena& arena;  ///< for tables of its own
  void* workspace;          ///< whose front the arena has handed out

  /// The rest of the workspace, for the walk. Tables end on a cache line, so it starts on one.
  void* scratch() const { return static_cast<char*>(workspace) + arena.used(); }
};

/// Maps the call, lays out its rows and has `walk` do its part, in so much workspace.
std::unique_ptr<Completion::State> run_streaming(
    const std::shared_ptr<ContextState>& state, const LossRequest& request,
    std::int64_t workspace_bytes, dispatch::Attempt& attempt,
    const std::function<void(const StreamingCall&)>& walk);

/// `Plan` is what the operator's walk plans.
template <class Plan>
class Streaming : public dispatch::Implementation {
 public:
  explicit Streaming(const char* description) : Implementation({"eigen", description, true}) {}

  std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                         const dispatch::Request& request,
                                         dispatch::Attempt& attempt) const override {
    const auto& r = loss_request(request);
    const auto plan = make_plan(*state, r);
    report(r, plan, attempt.dispatch);
    const auto walk_planned = [&](const StreamingCall& call) { walk(call, plan); };
    return run_streaming(state, r, attempt.dispatch.workspace_bytes, attempt,
                         std::ref(walk_planned));
  }

  tessera::Plan plan(ContextState& state, const dispatch::Request& request) const override {
    const auto& r = loss_request(request);
    tessera::Plan result;
    report(r, make_plan(state, r), result.dispatch);
    result.workspace_bytes = result.dispatch.workspace_bytes;
    result.minimum_workspace_bytes = std::min(minimum_bytes(state, r), result.workspace_bytes);
    return result;
  }

  std::pair<std::vector<NamedValue>, BlockSource> infer(
      ContextState& state, const dispatch::Request& request) const override {
    const auto& r = loss_request(request);
    Dispatch dispatch;
    report(r, make_plan(state, r), dispatch);
    return {std::move(dispatch.block_sizes), dispatch.block_source};
  }

  CostEstimate cost(ContextState& state, const dispatch::Request& request) const override {
    const auto& r = loss_request(request);
    return cost_of(r, make_plan(state, r));
  }

 protected:
  /// Throws Error workspace_too_small.
  virtual Plan make_plan(ContextState& state, const LossRequest& request) const = 0;
  /// Fills in schedule, block sizes of its own choice, knobs and workspace.
  virtual void describe(const LossRequest& request, const Plan& plan, Dispatch& dispatch) const = 0;
  /// The least workspace that a call of this shape accepts.
  virtual std::int64_t minimum_bytes(ContextState& state, const LossRequest& request) const = 0;
  virtual void walk(const StreamingCall& call, const Plan& plan) const = 0;
  virtual CostEstimate cost_of(const LossRequest& request, const Plan& plan) const = 0;

 private:
  void report(const LossRequest& request, const Plan& plan, Dispatch& dispatch) const {
    dispatch.implementation = "eigen";
    dispatch.device = "host";
    describe(request, plan, dispatch);
    const auto& given = request.call.block_sizes;
    dispatch.block_source = given ? BlockSource::caller : BlockSource::heuristic;
    if (given) dispatch.block_sizes = operators::blocks_by_name(*request.call.op, *given);
  }
};

}  // namespace tessera::loss
