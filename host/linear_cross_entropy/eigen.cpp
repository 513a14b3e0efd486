// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/linear_cross_entropy/request.hpp"
#include "host/loss/streaming.hpp"
#include "reference/streaming/linear.hpp"

namespace tessera::linear_cross_entropy {
namespace {

using loss::streaming_type;
using loss::StreamingRows;
using Plan = streaming::LinearPlan;

streaming::LinearShape shape_of(const Request& request, int threads) {
  const auto& g = request.gradients;
  const bool gradients = has_gradients(request.loss.pass);
  streaming::LinearShape shape;
  shape.rows = request.loss.b;
  shape.h = hidden(request);
  shape.v = request.loss.v;
  shape.values = request.loss.wants_values();
  shape.grad_x = gradients && static_cast<bool>(g.grad_x);
  shape.grad_w = gradients && static_cast<bool>(g.grad_w);
  shape.grad_bias = gradients && static_cast<bool>(g.grad_bias);
  shape.grad_x_f32 = g.grad_x.dtype() == DType::f32;
  shape.grad_w_f32 = g.grad_w.dtype() == DType::f32;
  shape.threads = threads;
  shape.form = StreamingRows::form(request.loss);
  return shape;
}

/// Tables of rows and widened vectors: everything the operator takes besides the walk's own memory.
std::int64_t table_bytes(const Request& request) {
  return StreamingRows::bytes(request.loss) + 2 * StreamingRows::offsets_bytes(request.loss) +
         loss::dense_f32_bytes(request.inputs.bias, request.loss.v) + loss::workspace_slack;
}

/// The least that any call of this shape takes: one row of f32 logits, so that every pass and
/// implementation draws the line at the same place, or what the walk needs.
std::int64_t minimum_bytes(const Request& request, const streaming::LinearShape& shape,
                           const streaming::LinearBlocks& blocks) {
  const std::int64_t needed =
      streaming::minimum_workspace(shape, blocks, streaming::kernels()) + table_bytes(request);
  return std::max(needed, request.loss.v * static_cast<std::int64_t>(sizeof(float)));
}

streaming::LinearBlocks blocks_of(const Request& request) {
  const auto& given = request.execution.block_sizes;
  if (!given) return {};
  return {given->b_block_size, given->h_block_size, given->v_block_size};
}

Plan make_plan(ContextState& state, const Request& request) {
  const auto shape = shape_of(request, state.threads.size());
  const auto blocks = blocks_of(request);
  const auto limit = loss::workspace_limit(request.execution.workspace_bytes,
                                           request.execution.workspace, request.loss.v);
  const auto one_row = request.loss.v * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t rest = limit.strict ? limit.bytes - table_bytes(request) : limit.bytes;
  if (!limit.strict || limit.bytes >= one_row) {
    if (auto plan =
            streaming::plan_linear(shape, blocks, rest, limit.strict, streaming::kernels())) {
      return *plan;
    }
    // A default never refuses: it is then the least that works.
    if (!limit.strict) {
      const auto least = streaming::minimum_workspace(shape, blocks, streaming::kernels());
      return *streaming::plan_linear(shape, blocks, least, true, streaming::kernels());
    }
  }
  loss::throw_workspace_too_small(
      limit,
      "B = " + std::to_string(shape.rows) + ", H = " + std::to_string(shape.h) +
          ", V = " + std::to_string(shape.v) + " and " + std::to_string(shape.threads) + " threads",
      minimum_bytes(request, shape, blocks));
}

BlockSizes describe(const Request& request, const Plan& plan, Dispatch& dispatch) {
  dispatch.schedule = plan.schedule;
  dispatch.workspace_bytes = plan.workspace_bytes + table_bytes(request);
  const auto& sweep = plan.sweeps[plan.sweep_count - 1];
  dispatch.knobs = {{"rows_per_chunk", sweep.rows},
                    {"blocks_per_range", sweep.blocks},
                    {"sweeps", plan.sweep_count},
                    {"threads", plan.threads},
                    {"lanes", streaming::kernels().lanes}};
  return {plan.rows_per_chunk(), plan.h_block, plan.v_block};
}

/// Where gradients go: those given, on the host.
void set_gradients(streaming::LinearProblem& p, const Gradients& given, const StreamingRows& rows,
                   streaming::Arena& arena) {
  p.add_x = given.accumulate.has(Accumulate::grad_x);
  p.add_w = given.accumulate.has(Accumulate::grad_w);
  p.add_bias = given.accumulate.has(Accumulate::grad_bias);
  if (given.grad_x) {
    p.grad_x = given.grad_x.host_data();
    p.grad_x_type = streaming_type(given.grad_x.dtype());
    p.grad_x_offsets = rows.offsets(given.grad_x, arena);
    p.grad_x_stride = given.grad_x.strides().back();
  }
  if (given.grad_w) {
    p.grad_w = given.grad_w.host_data();
    p.grad_w_type = streaming_type(given.grad_w.dtype());
    p.grad_w_stride_h = given.grad_w.strides()[0];
    p.grad_w_stride_v = given.grad_w.strides()[1];
  }
  if (given.grad_bias) {
    p.grad_bias = given.grad_bias.host_data();
    p.grad_bias_type = streaming_type(given.grad_bias.dtype());
    p.grad_bias_stride = given.grad_bias.strides()[0];
  }
}

void run(const loss::StreamingCall<Operator>& call, const Plan& plan) {
  const auto& r = call.request;
  const Inputs& in = r.inputs;
  streaming::LinearProblem p;
  call.rows.describe(p);
  p.h = hidden(r);
  p.x = in.x.host_data();
  p.x_type = streaming_type(in.x.dtype());
  p.x_offsets = call.rows.offsets(in.x, call.arena);
  p.x_stride = in.x.strides().back();
  p.w = in.w.host_data();
  p.w_type = streaming_type(in.w.dtype());
  p.w_stride_h = in.w.strides()[0];
  p.w_stride_v = in.w.strides()[1];
  p.bias = loss::dense_f32(in.bias, 0, r.loss.v, call.arena);
  if (has_gradients(r.loss.pass)) set_gradients(p, r.gradients, call.rows, call.arena);
  streaming::run_linear(p, plan, call.environment, call.scratch());
}

std::int64_t least_bytes(ContextState& state, const Request& request) {
  return minimum_bytes(request, shape_of(request, state.threads.size()), blocks_of(request));
}

/// Each sweep over the vocabulary forms the logits anew.
CostEstimate cost_of(const Request& request, const Plan& plan) {
  const auto blocks = request.execution.block_sizes.value_or(BlockSizes::get_default());
  return cost(request, blocks, plan.sweep_count);
}

}  // namespace

dispatch::Implementation<Request> eigen_implementation() {
  return loss::streaming_row<Operator, Plan>(
      {.description = "streaming, blockwise, on the host's threads with Eigen's matrix products",
       .make_plan = make_plan,
       .describe = describe,
       .minimum_bytes = least_bytes,
       .run = run,
       .cost = cost_of});
}

}  // namespace tessera::linear_cross_entropy
