// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/loss/streaming_rows.hpp"
#include "host/softmax_cross_entropy/request.hpp"
#include "reference/streaming/softmax.hpp"

namespace tessera::softmax_cross_entropy {
namespace {

using loss::streaming_type;
using loss::StreamingRows;

/// Tables of rows, besides the stream's own memory.
std::int64_t table_bytes(const Request& request) {
  return StreamingRows::bytes(request.loss) + 2 * StreamingRows::offsets_bytes(request.loss) +
         loss::workspace_slack;
}

streaming::SoftmaxPlan plan_within(ContextState& state, const Request& request,
                                   std::int64_t limit) {
  const auto& given = request.execution.block_sizes;
  return streaming::plan_softmax(request.loss.b, request.loss.v, given ? given->b_block_size : 0,
                                 given ? given->v_block_size : 0, state.threads.size(), limit);
}

streaming::SoftmaxPlan make_plan(ContextState& state, const Request& request) {
  const auto limit = loss::workspace_limit(request.execution.workspace_bytes,
                                           request.execution.workspace, request.loss.v);
  const std::int64_t tables = table_bytes(request);
  const auto plan = plan_within(state, request, limit.bytes - tables);
  const std::int64_t needed = plan.workspace_bytes + tables;
  if (limit.strict && limit.bytes < needed) {
    loss::throw_workspace_too_small(limit,
                                    "B = " + std::to_string(request.loss.b) +
                                        ", V = " + std::to_string(request.loss.v) + " and " +
                                        std::to_string(state.threads.size()) + " threads",
                                    needed);
  }
  return plan;
}

void describe(const Request& request, const streaming::SoftmaxPlan& plan, Dispatch& dispatch) {
  dispatch.implementation = "eigen";
  dispatch.device = "host";
  dispatch.schedule = plan.schedule;
  dispatch.workspace_bytes = plan.workspace_bytes + table_bytes(request);
  const auto& given = request.execution.block_sizes;
  dispatch.block_source = given ? BlockSource::caller : BlockSource::heuristic;
  const auto blocks = given.value_or(BlockSizes{plan.rows_per_task, plan.v_block});
  dispatch.block_sizes = {{"b_block_size", blocks.b_block_size},
                          {"v_block_size", blocks.v_block_size}};
  dispatch.knobs = {{"rows_per_task", plan.rows_per_task},
                    {"slices", plan.slices},
                    {"threads", plan.threads},
                    {"lanes", streaming::kernels().lanes}};
}

std::unique_ptr<Completion::State> run_eigen(const std::shared_ptr<ContextState>& state,
                                             const Request& request, dispatch::Attempt& attempt) {
  const auto plan = make_plan(*state, request);
  describe(request, plan, attempt.dispatch);
  if (state->device) state->device->wait_for(request.execution.wait_for);

  dispatch::HostViews views(*state, request.execution.queue);
  const auto& wanted = request.gradients;
  const auto mapped = loss::on_host(request.loss, views, {&request.logits}, {&wanted.grad_logits});
  const View logits = views.read(request.logits);
  const MutableView grad_logits = views.write(wanted.grad_logits);
  const bool gradient = mapped.wants_gradients() && static_cast<bool>(grad_logits);

  const loss::StreamingWorkspace workspace(*state, views, request.execution.workspace,
                                           attempt.dispatch.workspace_bytes);
  streaming::Arena arena(workspace.data());
  const StreamingRows rows(mapped, arena);
  const auto environment = loss::environment(*state);

  streaming::SoftmaxProblem p;
  p.rows = rows.kept();
  p.gradient_rows = rows.labelled();
  p.v = mapped.v;
  p.logits = logits.host_data();
  p.type = streaming_type(logits.dtype());
  p.offsets = rows.offsets(logits, arena);
  p.stride = logits.strides().back();
  p.class_weight = rows.class_weight();
  p.labels = rows.labels();
  p.scale = mapped.options.logit_scale;
  p.cap = mapped.options.logit_soft_cap;
  p.class_terms = rows.class_terms();
  p.entropy = rows.entropy();
  p.argmax = rows.argmax();
  p.values = mapped.wants_values();
  p.sums = rows.sums();
  p.cotangents = rows.cotangents();
  p.logsumexp_weight = static_cast<double>(mapped.options.logsumexp_weight);
  if (gradient) {
    p.grad_logits = grad_logits.host_data();
    p.grad_type = streaming_type(grad_logits.dtype());
    p.grad_offsets = rows.offsets(grad_logits, arena);
    p.grad_stride = grad_logits.strides().back();
    p.accumulate = wanted.accumulate;
  }

  attempt.outputs_touched = true;
  streaming::run_softmax(p, plan, environment, static_cast<char*>(workspace.data()) + arena.used());
  if (gradient) rows.fill_other_rows(grad_logits, wanted.accumulate, environment);
  if (mapped.wants_values()) rows.write_values();
  auto completion = rows.completion();
  views.finish();
  return completion;
}

Plan plan_eigen(ContextState& state, const Request& request) {
  const auto plan = make_plan(state, request);
  Plan result;
  describe(request, plan, result.dispatch);
  result.workspace_bytes = result.dispatch.workspace_bytes;
  result.minimum_workspace_bytes =
      plan_within(state, request, 0).workspace_bytes + table_bytes(request);
  return result;
}

}  // namespace

dispatch::Implementation<Request> eigen_implementation() {
  return {"eigen",   "streaming, vectorised, on the host's threads",
          true,      [](ContextState&, const Request&) { return std::optional<std::string>(); },
          run_eigen, plan_eigen};
}

}  // namespace tessera::softmax_cross_entropy
