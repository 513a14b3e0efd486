// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/linear_cross_entropy/opencl_prepare.hpp"

namespace tessera::linear_cross_entropy {
namespace {

/// `family`: an engine's name.
std::optional<std::string> why_unsupported(ContextState& state, const Request& request,
                                           const std::string& family) {
  auto* runtime = opencl::runtime_of(state);
  if (runtime == nullptr) return "the context has no OpenCL device";
  if (auto reason = runtime->keep<PreparedCalls>().why_unsupported(request, family, *runtime)) {
    return reason;
  }
  return engines::beyond_32_bits({{"B", request.loss.b}, {"H", request.h}, {"V", request.loss.v}});
}

void describe(Dispatch& dispatch, const Request& request, const Prepared& prepared,
              const DeviceInfo& info) {
  const auto& engine = *prepared.engine;
  const auto& schedule = prepared.schedule;
  dispatch.implementation = "opencl." + engine.name();
  dispatch.schedule = schedule.name;
  dispatch.device = info.name;
  dispatch.driver = info.driver;
  dispatch.block_sizes = to_named(schedule.blocks);
  dispatch.block_source = schedule.source;
  dispatch.knobs = knobs_of(request, engine, schedule);
  dispatch.notes = prepared.notes;
  dispatch.workspace_bytes = schedule.scratch_words * 4;
}

/// The call without the gradients that have no element (H of 0): no kernel writes them, and only
/// grad_bias is left to do.
Request without_empty_gradients(Request request) {
  request.gradients.grad_x = {};
  request.gradients.grad_w = {};
  return request;
}

std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                       const Request& request, dispatch::Attempt& attempt,
                                       const std::string& family) {
  if (request.h == 0 && (request.gradients.grad_x || request.gradients.grad_w)) {
    return run(state, without_empty_gradients(request), attempt, family);
  }
  auto& runtime = *opencl::runtime_of(*state);
  const auto prepared = runtime.keep<PreparedCalls>().prepare(request, family, runtime);
  const auto& schedule = prepared->schedule;
  engines::check_lent_workspace(request.execution.workspace, schedule.scratch_words);
  opencl::Call call(
      state, runtime,
      {request.execution.queue, request.execution.wait_for, request.execution.workspace}, attempt);
  Run(call, request, *prepared->engine, schedule, prepared->programs).enqueue();
  // Only now, while the device works.
  describe(attempt.dispatch, request, *prepared, runtime.info());
  return call.finish();
}

Plan plan(ContextState& state, const Request& request, const std::string& family) {
  auto& runtime = *opencl::runtime_of(state);
  const auto prepared = prepare(request, family, runtime);
  Plan result;
  describe(result.dispatch, request, prepared, runtime.info());
  result.workspace_bytes = prepared.schedule.scratch_words * 4;
  result.minimum_workspace_bytes =
      minimum_workspace_bytes(request, prepared.shapes, runtime.facts(), runtime.info());
  build_kernels(request, prepared, runtime);
  return result;
}

}  // namespace

std::vector<dispatch::Implementation<Request>> opencl_implementations() {
  std::vector<dispatch::Implementation<Request>> rows;
  for (const auto& entry : engines::all_engines()) {
    const std::string& family = entry.name;
    dispatch::Implementation<Request> row;
    row.name = "opencl." + family;
    row.description = entry.description;
    row.sets_knobs = true;
    row.why_unsupported = [family](ContextState& state, const Request& request) {
      return why_unsupported(state, request, family);
    };
    row.run = [family](const std::shared_ptr<ContextState>& state, const Request& request,
                       dispatch::Attempt& attempt) { return run(state, request, attempt, family); };
    row.plan = [family](ContextState& state, const Request& request) {
      return plan(state, request, family);
    };
    row.infer = [family](ContextState& state, const Request& request) {
      const auto schedule = prepare(request, family, *opencl::runtime_of(state)).schedule;
      return std::pair{schedule.blocks, schedule.source};
    };
    row.formed = [family](ContextState& state, const Request& request) -> std::int64_t {
      const auto schedule = prepare(request, family, *opencl::runtime_of(state)).schedule;
      // With the vocabulary outside, the values of all rows are known before the first gradient.
      const bool twice = schedule.v_outer && !schedule.keeps_logits;
      return twice && request.loss.pass == Pass::value_and_grad ? 2 : 1;
    };
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tessera::linear_cross_entropy
