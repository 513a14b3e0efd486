// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/loss/streaming.hpp"
#include "host/softmax_cross_entropy/request.hpp"
#include "reference/streaming/softmax.hpp"

namespace tessera::softmax_cross_entropy {
namespace {

using loss::streaming_type;
using loss::StreamingRows;
using Plan = streaming::SoftmaxPlan;

/// Tables of rows, besides the stream's own memory.
std::int64_t table_bytes(const Request& request) {
  return StreamingRows::bytes(request.loss) + 2 * StreamingRows::offsets_bytes(request.loss) +
         loss::workspace_slack;
}

Plan plan_within(ContextState& state, const Request& request, std::int64_t limit) {
  const auto& given = request.execution.block_sizes;
  return streaming::plan_softmax(request.loss.b, request.loss.v, StreamingRows::form(request.loss),
                                 given ? given->b_block_size : 0, given ? given->v_block_size : 0,
                                 state.threads.size(), limit);
}

Plan make_plan(ContextState& state, const Request& request) {
  const auto limit = loss::workspace_limit(request.execution.workspace_bytes, request.loss.v);
  const std::int64_t tables = table_bytes(request);
  const auto plan = plan_within(state, request, limit.bytes - tables);
  const std::int64_t needed = plan.workspace_bytes + tables;
  if (limit.strict && limit.bytes < needed) {
    loss::throw_workspace_too_small(limit,
                                    fmt::format("B = {}, V = {} and {} threads", request.loss.b,
                                                request.loss.v, state.threads.size()),
                                    needed);
  }
  return plan;
}

BlockSizes describe(const Request& request, const Plan& plan, Dispatch& dispatch) {
  dispatch.schedule = plan.schedule;
  dispatch.workspace_bytes = plan.workspace_bytes + table_bytes(request);
  dispatch.knobs = {{"rows_per_task", plan.rows_per_task},
                    {"slices", plan.slices},
                    {"threads", plan.threads},
                    {"lanes", streaming::kernels().lanes}};
  return {plan.rows_per_task, plan.v_block};
}

std::int64_t minimum_bytes(ContextState& state, const Request& request) {
  return plan_within(state, request, 0).workspace_bytes + table_bytes(request);
}

void run(const loss::StreamingCall<Operator>& call, const Plan& plan) {
  const auto& r = call.request;
  const View& logits = r.inputs.logits;
  streaming::SoftmaxProblem p;
  call.rows.describe(p);
  p.logits = logits.host_data();
  p.type = streaming_type(logits.dtype());
  p.offsets = call.rows.offsets(logits, call.arena);
  p.stride = logits.strides().back();
  p.values = r.loss.wants_values();
  if (const auto& to = r.gradients.grad_logits) {
    p.grad_logits = to.host_data();
    p.grad_type = streaming_type(to.dtype());
    p.grad_offsets = call.rows.offsets(to, call.arena);
    p.grad_stride = to.strides().back();
    p.accumulate = r.gradients.accumulate;
  }
  streaming::run_softmax(p, plan, call.environment, call.scratch());
}

}  // namespace

dispatch::Implementation<Request> eigen_implementation() {
  return loss::streaming_row<Operator, Plan>(
      {.description = "streaming, vectorised, on the host's threads",
       .make_plan = make_plan,
       .describe = describe,
       .minimum_bytes = minimum_bytes,
       .run = run});
}

}  // namespace tessera::softmax_cross_entropy
