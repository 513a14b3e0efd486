// SPDX-License-Identifier: Apache-2.0
#include "host/linear/walk.hpp"
#include "host/linear_cross_entropy/request.hpp"

namespace tessera::linear_cross_entropy {
namespace {

using loss::LossRequest;
using loss::StreamingRows;

class EigenWalk final : public linear::Walk {
  streaming::LinearShape shape(const LossRequest& request, int threads) const override {
    return linear::walk_shape(request_of(request), threads);
  }

  std::int64_t table_bytes(const LossRequest& request) const override {
    return StreamingRows::bytes(request) + 2 * StreamingRows::offsets_bytes(request) +
           loss::dense_f32_bytes(request_of(request).inputs.bias, request.v) +
           dispatch::workspace_slack;
  }

  void walk(const loss::StreamingCall& call, const Plan& plan) const override {
    const auto r = request_of(call.request);
    streaming::LinearProblem p;
    call.rows.describe(p);
    linear::set_layer(p, r.inputs.x, r.inputs.w, r.inputs.bias, call);
    if (has_gradients(r.loss.pass)) linear::set_gradients(p, r, call);
    streaming::run_linear(p, plan, call.environment, call.scratch());
  }

  /// Each sweep over the vocabulary forms the logits anew.
  CostEstimate cost_of(const LossRequest& request, const Plan& plan) const override {
    const auto r = request_of(request);
    return linear_cross_entropy::cost(r, r.execution.block_sizes.value_or(blocks_of(plan)),
                                      plan.sweep_count);
  }
};

}  // namespace

std::unique_ptr<dispatch::Implementation> eigen_implementation() {
  return std::make_unique<EigenWalk>();
}

}  // namespace tessera::linear_cross_entropy
