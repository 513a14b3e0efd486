// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "host/loss/streaming.hpp"
#include "reference/streaming/linear.hpp"

/// What operators share whose logits are the product of x [..., H] and w [H, V] on the host: the
/// walk of reference/streaming/linear.hpp, planned, reported and given its arrays. `Op` has inputs
/// x, w and bias, and gradients grad_x, grad_w and grad_bias.
namespace tessera::linear {

using loss::OperatorRequest;
using loss::streaming_type;
using loss::StreamingCall;
using loss::StreamingRows;

template <class Op>
streaming::LinearShape walk_shape(const OperatorRequest<Op>& request, int threads) {
  const auto& g = request.gradients;
  const bool gradients = has_gradients(request.loss.pass);
  streaming::LinearShape shape;
  shape.rows = request.loss.b;
  shape.h = request.inputs.x.extents().back();
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

template <class Op>
streaming::LinearBlocks walk_blocks(const OperatorRequest<Op>& request) {
  const auto& given = request.execution.block_sizes;
  if (!given) return {};
  return {given->b_block_size, given->h_block_size, given->v_block_size};
}

/// The least that any call of this shape takes: one row of f32 logits, so that every pass and
/// implementation draws the line at the same place, or what the walk needs. `tables`: bytes that
/// the operator takes besides the walk.
template <class Op>
std::int64_t walk_minimum(const OperatorRequest<Op>& request, const streaming::LinearShape& shape,
                          std::int64_t tables) {
  const std::int64_t needed =
      streaming::minimum_workspace(shape, walk_blocks<Op>(request), streaming::kernels()) + tables;
  return std::max(needed, request.loss.v * static_cast<std::int64_t>(sizeof(float)));
}

/// Throws Error workspace_too_small.
template <class Op>
streaming::LinearPlan plan_walk(const OperatorRequest<Op>& request,
                                const streaming::LinearShape& shape, std::int64_t tables) {
  const auto blocks = walk_blocks<Op>(request);
  const auto& kernels = streaming::kernels();
  const auto limit = loss::workspace_limit(request.execution.workspace_bytes, request.loss.v);
  const auto one_row = request.loss.v * static_cast<std::int64_t>(sizeof(float));
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
      walk_minimum<Op>(request, shape, tables));
}

template <class Op>
typename Op::BlockSizes describe_walk(const streaming::LinearPlan& plan, std::int64_t tables,
                                      Dispatch& dispatch) {
  dispatch.schedule = plan.schedule;
  dispatch.workspace_bytes = plan.workspace_bytes + tables;
  const auto& sweep = plan.sweeps[plan.sweep_count - 1];
  dispatch.knobs = {{"rows_per_chunk", sweep.rows},
                    {"blocks_per_range", sweep.blocks},
                    {"sweeps", plan.sweep_count},
                    {"threads", plan.threads},
                    {"lanes", streaming::kernels().lanes}};
  return {plan.rows_per_chunk(), plan.h_block, plan.v_block};
}

/// What an operator says of its walk.
template <class Op>
struct Walk {
  /// What `walk_shape` says, and what the operator's walk does besides.
  streaming::LinearShape (*shape)(const OperatorRequest<Op>&, int threads);
  /// Tables of rows and widened vectors: everything the operator takes besides the walk's memory.
  std::int64_t (*table_bytes)(const OperatorRequest<Op>&);
  void (*run)(const StreamingCall<Op>&, const streaming::LinearPlan&);
  CostEstimate (*cost)(const OperatorRequest<Op>&, const streaming::LinearPlan&);
};

/// The row `eigen` of an operator; `walk` is a constant.
template <class Op, const Walk<Op>& walk>
dispatch::Implementation<OperatorRequest<Op>> walk_row() {
  using Request = OperatorRequest<Op>;
  using Plan = streaming::LinearPlan;
  const auto make_plan = [](ContextState& state, const Request& request) {
    return plan_walk<Op>(request, walk.shape(request, state.threads.size()),
                         walk.table_bytes(request));
  };
  const auto describe = [](const Request& request, const Plan& plan, Dispatch& dispatch) {
    return describe_walk<Op>(plan, walk.table_bytes(request), dispatch);
  };
  const auto minimum_bytes = [](ContextState& state, const Request& request) {
    return walk_minimum<Op>(request, walk.shape(request, state.threads.size()),
                            walk.table_bytes(request));
  };
  return loss::streaming_row<Op, Plan>(
      {.description = "streaming, blockwise, on the host's threads with Eigen's matrix products",
       .make_plan = make_plan,
       .describe = describe,
       .minimum_bytes = minimum_bytes,
       .run = walk.run,
       .cost = walk.cost});
}

/// The arrays of a layer, on the host.
template <class Call>
void set_layer(streaming::LinearLayer& layer, const View& x, const View& w, const View& bias,
               const Call& call) {
  layer.h = x.extents().back();
  layer.x = x.host_data();
  layer.x_type = streaming_type(x.dtype());
  layer.x_offsets = call.rows.offsets(x, call.arena);
  layer.x_stride = x.strides().back();
  layer.w = w.host_data();
  layer.w_type = streaming_type(w.dtype());
  layer.w_stride_h = w.strides()[0];
  layer.w_stride_v = w.strides()[1];
  layer.bias = loss::dense_f32(bias, 0, call.request.loss.v, call.arena);
}

/// Where gradients go: those given, on the host.
template <class Op>
void set_gradients(streaming::LinearProblem& p, const StreamingCall<Op>& call) {
  const auto& given = call.request.gradients;
  p.add_x = OperatorTraits<Op>::accumulates(given, 0);
  p.add_w = OperatorTraits<Op>::accumulates(given, 1);
  p.add_bias = OperatorTraits<Op>::accumulates(given, 2);
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
