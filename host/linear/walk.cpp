// SPDX-License-Identifier: Apache-2.0
#include "host/linear/walk.hpp"

#include <algorithm>
#include <string>

namespace tessera::linear {
namespace {

streaming::LinearBlocks given_blocks(const LossRequest& request) {
  const auto given = operators::blocks_as<BlockSizes>(request.call.block_sizes);
  if (!given) return {};
  return {given->b_block_size, given->h_block_size, given->v_block_size};
}

/// The least that any call of this shape takes: one row of f32 logits, so that every pass and
/// implementation draws the line at the same place, or what the walk needs. `tables`: bytes that
/// the operator takes besides the walk.
std::int64_t minimum(const LossRequest& request, const streaming::LinearShape& shape,
                     std::int64_t tables) {
  const std::int64_t needed =
      streaming::minimum_workspace(shape, given_blocks(request), streaming::kernels()) + tables;
  return std::max(needed, request.v * static_cast<std::int64_t>(sizeof(float)));
}

}  // namespace

streaming::LinearShape walk_shape(const Request& request, int threads) {
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

Walk::Plan Walk::make_plan(ContextState& state, const LossRequest& request) const {
  const auto shape = this->shape(request, state.threads.size());
  const std::int64_t tables = table_bytes(request);
  const auto blocks = given_blocks(request);
  const auto& kernels = streaming::kernels();
  const auto limit = loss::workspace_limit(request.call.workspace_bytes, request.v);
  const auto one_row = request.v * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t rest = limit.strict ? limit.bytes - tables : limit.bytes;
  if (!limit.strict || limit.bytes >= one_row) {
    if (auto plan = streaming::plan_linear(shape, blocks, rest, limit.strict, kernels)) {
      return *plan;
    }
    // A default never refuses: it is then the least that works.
    if (!limit.strict) {
      const auto least = streaming::minimum_workspace(shape, blocks, kernels);
      return *streaming::plan_linear(shape, blocks, least, true, kernels);
    }
  }
  loss::throw_workspace_too_small(
      limit,
      "B = " + std::to_string(shape.rows) + ", H = " + std::to_string(shape.h) +
          ", V = " + std::to_string(shape.v) + " and " + std::to_string(shape.threads) + " threads",
      minimum(request, shape, tables));
}

void Walk::describe(const LossRequest& request, const Plan& plan, Dispatch& dispatch) const {
  dispatch.schedule = plan.schedule;
  dispatch.workspace_bytes = plan.workspace_bytes + table_bytes(request);
  const auto& sweep = plan.sweeps[plan.sweep_count - 1];
  dispatch.knobs = {{"rows_per_chunk", sweep.rows},
                    {"blocks_per_range", sweep.blocks},
                    {"sweeps", plan.sweep_count},
                    {"threads", plan.threads},
                    {"lanes", streaming::kernels().lanes}};
  dispatch.block_sizes = to_named(blocks_of(plan));
}

std::int64_t Walk::minimum_bytes(ContextState& state, const LossRequest& request) const {
  return minimum(request, shape(request, state.threads.size()), table_bytes(request));
}

void set_layer(streaming::LinearLayer& layer, const View& x, const View& w, const View& bias,
               const StreamingCall& call) {
  layer.h = x.extents().back();
  layer.x = x.host_data();
  layer.x_type = streaming_type(x.dtype());
  layer.x_offsets = call.rows.offsets(x, call.arena);
  layer.x_stride = x.strides().back();
  layer.w = w.host_data();
  layer.w_type = streaming_type(w.dtype());
  layer.w_stride_h = w.strides()[0];
  layer.w_stride_v = w.strides()[1];
  layer.bias = loss::dense_f32(bias, 0, call.request.v, call.arena);
}

void set_gradients(streaming::LinearProblem& p, const Request& request, const StreamingCall& call) {
  const auto& given = request.gradients;
  p.add_x = given.accumulate.has(Accumulate::grad_x);
  p.add_w = given.accumulate.has(Accumulate::grad_w);
  p.add_bias = given.accumulate.has(Accumulate::grad_bias);
  if (given.grad_x) {
    p.grad_x = given.grad_x.host_data();
    p.grad_x_type = streaming_type(given.grad_x.dtype());
    p.grad_x_offsets = call.rows.offsets(given.grad_x, call.arena);
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

}  // namespace tessera::linear
