// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/loss/streaming.hpp"
#include "host/softmax_cross_entropy/request.hpp"
#include "reference/streaming/softmax.hpp"

namespace tessera::softmax_cross_entropy {
namespace {

using loss::LossRequest;
using loss::streaming_type;
using loss::StreamingRows;
using Plan = streaming::SoftmaxPlan;

/// Tables of rows, besides the stream's own memory.
std::int64_t table_bytes(const LossRequest& request) {
  return StreamingRows::bytes(request) + 2 * StreamingRows::offsets_bytes(request) +
         dispatch::workspace_slack;
}

Plan plan_within(ContextState& state, const LossRequest& request, std::int64_t limit) {
  const auto given = operators::blocks_as<BlockSizes>(request.call.block_sizes);
  return streaming::plan_softmax(request.b, request.v, StreamingRows::form(request),
                                 given ? given->b_block_size : 0, given ? given->v_block_size : 0,
                                 state.threads.size(), limit);
}

class Stream final : public loss::Streaming<Plan> {
 public:
  Stream() : Streaming("streaming, vectorised, on the host's threads") {}

 private:
  Plan make_plan(ContextState& state, const LossRequest& request) const override {
    const auto limit = loss::workspace_limit(request.call.workspace_bytes, request.v);
    const std::int64_t tables = table_bytes(request);
    const auto plan = plan_within(state, request, limit.bytes - tables);
    const std::int64_t needed = plan.workspace_bytes + tables;
    if (limit.strict && limit.bytes < needed) {
      loss::throw_workspace_too_small(
          limit,
          fmt::format("B = {}, V = {} and {} threads", request.b, request.v, state.threads.size()),
          needed);
    }
    return plan;
  }

  void describe(const LossRequest& request, const Plan& plan, Dispatch& dispatch) const override {
    dispatch.schedule = plan.schedule;
    dispatch.workspace_bytes = plan.workspace_bytes + table_bytes(request);
    dispatch.knobs = {{"rows_per_task", plan.rows_per_task},
                      {"slices", plan.slices},
                      {"threads", plan.threads},
                      {"lanes", streaming::kernels().lanes}};
    dispatch.block_sizes = to_named(BlockSizes{plan.rows_per_task, plan.v_block});
  }

  std::int64_t minimum_bytes(ContextState& state, const LossRequest& request) const override {
    return plan_within(state, request, 0).workspace_bytes + table_bytes(request);
  }

  void walk(const loss::StreamingCall& call, const Plan& plan) const override {
    const auto r = request_of(call.request);
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

  CostEstimate cost_of(const LossRequest& request, const Plan&) const override {
    return softmax_cross_entropy::cost(request_of(request));
  }
};

}  // namespace

std::unique_ptr<dispatch::Implementation> eigen_implementation() {
  return std::make_unique<Stream>();
}

}  // namespace tessera::softmax_cross_entropy
