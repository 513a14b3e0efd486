// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/linear_cross_entropy/request.hpp"
#include "host/loss/streaming_rows.hpp"
#include "reference/streaming/linear.hpp"

namespace tessera::linear_cross_entropy {
namespace {

using loss::streaming_type;
using loss::StreamingRows;

streaming::LinearShape shape_of(const Request& request, int threads) {
  const auto& g = request.gradients;
  const bool gradients = request.loss.wants_gradients();
  streaming::LinearShape shape;
  shape.rows = request.loss.b;
  shape.h = request.h;
  shape.v = request.loss.v;
  shape.values = request.loss.wants_values();
  shape.grad_x = gradients && static_cast<bool>(g.grad_x);
  shape.grad_w = gradients && static_cast<bool>(g.grad_w);
  shape.grad_bias = gradients && static_cast<bool>(g.grad_bias);
  shape.grad_x_f32 = g.grad_x.dtype() == DType::f32;
  shape.grad_w_f32 = g.grad_w.dtype() == DType::f32;
  shape.threads = threads;
  return shape;
}

/// Tables of rows and widened vectors: everything the operator takes besides the walk's own memory.
std::int64_t table_bytes(const Request& request) {
  return StreamingRows::bytes(request.loss) + 2 * StreamingRows::offsets_bytes(request.loss) +
         loss::dense_f32_bytes(request.bias, request.loss.v) + loss::workspace_slack;
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

streaming::LinearPlan make_plan(ContextState& state, const Request& request) {
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

void describe(const Request& request, const streaming::LinearPlan& plan, Dispatch& dispatch) {
  dispatch.implementation = "eigen";
  dispatch.device = "host";
  dispatch.schedule = plan.schedule;
  dispatch.workspace_bytes = plan.workspace_bytes + table_bytes(request);
  const auto& given = request.execution.block_sizes;
  dispatch.block_source = given ? BlockSource::caller : BlockSource::heuristic;
  const auto blocks = given.value_or(BlockSizes{plan.rows_per_chunk(), plan.h_block, plan.v_block});
  dispatch.block_sizes = {{"b_block_size", blocks.b_block_size},
                          {"h_block_size", blocks.h_block_size},
                          {"v_block_size", blocks.v_block_size}};
  const auto& sweep = plan.sweeps[plan.sweep_count - 1];
  dispatch.knobs = {{"rows_per_chunk", sweep.rows},
                    {"blocks_per_range", sweep.blocks},
                    {"sweeps", plan.sweep_count},
                    {"threads", plan.threads},
                    {"lanes", streaming::kernels().lanes}};
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

std::unique_ptr<Completion::State> run_eigen(const std::shared_ptr<ContextState>& state,
                                             const Request& request, dispatch::Attempt& attempt) {
  const auto plan = make_plan(*state, request);
  describe(request, plan, attempt.dispatch);
  if (state->device) state->device->wait_for(request.execution.wait_for);

  dispatch::HostViews views(*state, request.execution.queue);
  const auto& wanted = request.gradients;
  const auto mapped = loss::on_host(request.loss, views, {&request.x, &request.w, &request.bias},
                                    {&wanted.grad_x, &wanted.grad_w, &wanted.grad_bias});
  const View x = views.read(request.x);
  const View w = views.read(request.w);
  const View bias = views.read(request.bias);
  const MutableView grad_x = views.write(wanted.grad_x);
  const MutableView grad_w = views.write(wanted.grad_w);
  const MutableView grad_bias = views.write(wanted.grad_bias);

  const loss::StreamingWorkspace workspace(*state, views, request.execution.workspace,
                                           attempt.dispatch.workspace_bytes);
  streaming::Arena arena(workspace.data());
  const StreamingRows rows(mapped, arena);
  const auto environment = loss::environment(*state);

  streaming::LinearProblem p;
  p.rows = rows.kept();
  p.gradient_rows = rows.labelled();
  p.h = request.h;
  p.v = mapped.v;
  p.x = x.host_data();
  p.x_type = streaming_type(x.dtype());
  p.x_offsets = rows.offsets(x, arena);
  p.x_stride = x.strides().back();
  p.w = w.host_data();
  p.w_type = streaming_type(w.dtype());
  p.w_stride_h = w.strides()[0];
  p.w_stride_v = w.strides()[1];
  p.bias = loss::dense_f32(bias, 0, mapped.v, arena);
  p.class_weight = rows.class_weight();
  p.labels = rows.labels();
  p.scale = mapped.options.logit_scale;
  p.cap = mapped.options.logit_soft_cap;
  p.class_terms = rows.class_terms();
  p.entropy = rows.entropy();
  p.argmax = rows.argmax();
  p.sums = rows.sums();
  p.cotangents = rows.cotangents();
  p.logsumexp_weight = static_cast<double>(mapped.options.logsumexp_weight);
  if (mapped.wants_gradients()) {
    set_gradients(p, {grad_x, grad_w, grad_bias, wanted.accumulate}, rows, arena);
  }

  attempt.outputs_touched = true;
  // The row tables end on a cache line, so what follows them starts on one.
  streaming::run_linear(p, plan, environment, static_cast<char*>(workspace.data()) + arena.used());
  if (mapped.wants_gradients() && grad_x) {
    rows.fill_other_rows(grad_x, p.add_x, environment);
  }
  if (mapped.wants_values()) rows.write_values();
  auto completion = rows.completion();
  views.finish();
  return completion;
}

Plan plan_eigen(ContextState& state, const Request& request) {
  const auto plan = make_plan(state, request);
  const auto shape = shape_of(request, state.threads.size());
  Plan result;
  describe(request, plan, result.dispatch);
  result.workspace_bytes = result.dispatch.workspace_bytes;
  result.minimum_workspace_bytes =
      std::min(minimum_bytes(request, shape, blocks_of(request)), result.workspace_bytes);
  return result;
}

}  // namespace

dispatch::Implementation<Request> eigen_implementation() {
  return {"eigen",
          "streaming, blockwise, on the host's threads with Eigen's matrix products",
          true,
          [](ContextState&, const Request&) { return std::optional<std::string>(); },
          run_eigen,
          plan_eigen,
          {},
          // Each sweep over the vocabulary forms the logits anew.
          [](ContextState& state, const Request& request) -> std::int64_t {
            return make_plan(state, request).sweep_count;
          }};
}

}  // namespace tessera::linear_cross_entropy
