// SPDX-License-Identifier: Apache-2.0
#include "host/linear/walk.hpp"
#include "host/linear_cross_entropy/request.hpp"

namespace tessera::linear_cross_entropy {
namespace {

using loss::StreamingRows;
using Plan = streaming::LinearPlan;

std::int64_t table_bytes(const Request& request) {
  return StreamingRows::bytes(request.loss) + 2 * StreamingRows::offsets_bytes(request.loss) +
         loss::dense_f32_bytes(request.inputs.bias, request.loss.v) + loss::workspace_slack;
}

void run(const loss::StreamingCall<Operator>& call, const Plan& plan) {
  const auto& r = call.request;
  const Inputs& in = r.inputs;
  streaming::LinearProblem p;
  call.rows.describe(p);
  linear::set_layer(p, in.x, in.w, in.bias, call);
  if (has_gradients(r.loss.pass)) linear::set_gradients(p, call);
  streaming::run_linear(p, plan, call.environment, call.scratch());
}

/// Each sweep over the vocabulary forms the logits anew.
CostEstimate cost_of(const Request& request, const Plan& plan) {
  const auto blocks = request.execution.block_sizes.value_or(BlockSizes::get_default());
  return cost(request, blocks, plan.sweep_count);
}

constexpr linear::Walk<Operator> walk = {
    .shape = linear::walk_shape<Operator>, .table_bytes = table_bytes, .run = run, .cost = cost_of};

}  // namespace

dispatch::Implementation<Request> eigen_implementation() {
  return linear::walk_row<Operator, walk>();
}

}  // namespace tessera::linear_cross_entropy
