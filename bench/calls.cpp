// SPDX-License-Identifier: Apache-2.0
#include "bench/calls.hpp"

namespace tessera::bench {
namespace {

namespace lce = linear_cross_entropy;
namespace sce = softmax_cross_entropy;

const LossOptions loss_options{};

lce::ExecutionOptions linear_execution(const Row& row, const Options& options) {
  lce::ExecutionOptions e{.implementation = row.implementation, .block_sizes = options.block_sizes};
  if (options.workspace_bytes) {
    e.workspace_bytes = static_cast<std::size_t>(*options.workspace_bytes);
  }
  e.knobs = options.knobs;
  e.gradient_filter_eps = row.gradient_filter_eps;
  return e;
}

sce::ExecutionOptions softmax_execution(const Row& row, const Options& options) {
  sce::ExecutionOptions e{.implementation = row.implementation};
  e.knobs = options.knobs;
  if (options.block_sizes) {
    e.block_sizes = {options.block_sizes->b_block_size, options.block_sizes->v_block_size};
  }
  if (options.workspace_bytes) {
    e.workspace_bytes = static_cast<std::size_t>(*options.workspace_bytes);
  }
  return e;
}

/// Everything a call takes, with memory or (for questions) without.
struct Arguments {
  lce::Inputs linear;
  lce::Gradients linear_gradients;
  sce::Inputs softmax;
  sce::Gradients softmax_gradients;
  Outputs outputs;
};

Arguments arguments_of(const Row& row, const Arrays& a) {
  Arguments r;
  r.linear = {.x = a.x, .labels = a.labels, .w = a.w};
  r.softmax = {.logits = a.logits, .labels = a.labels};
  if (row.pass == Pass::backward) r.linear.statistics = r.softmax.statistics = a.statistics;
  if (row.values()) r.outputs.loss = a.loss;
  if (row.pass == Pass::forward) r.outputs.statistics = a.statistics;
  r.linear_gradients = {.grad_x = a.grad_x, .grad_w = a.grad_w};
  r.softmax_gradients = {.grad_logits = a.grad_logits};
  return r;
}

Arguments question_of(const Row& row) {
  const auto& key = row.problem;
  const auto [b, h, v] = key.shape;
  const auto absent = [](DType type, const Dims& extents, const Dims& strides = {}) {
    return MutableView::host(nullptr, type, extents, strides);
  };
  Arguments r;
  r.linear = {.x = absent(key.x, {b, h}),
              .labels = absent(DType::i32, {b}),
              .w = absent(key.w, {h, v}, w_strides(key))};
  r.softmax = {.logits = absent(key.x, {b, v}), .labels = absent(DType::i32, {b})};
  const MutableView statistics = absent(DType::f32, {b, 2});
  if (row.pass == Pass::backward) r.linear.statistics = r.softmax.statistics = statistics;
  if (row.values()) r.outputs.loss = absent(DType::f32, {});
  if (row.pass == Pass::forward) r.outputs.statistics = statistics;
  if (row.gradients()) {
    if (row.grad_x) r.linear_gradients.grad_x = absent(key.x, {b, h});
    if (row.grad_w) r.linear_gradients.grad_w = absent(key.w, {h, v}, w_strides(key));
    r.softmax_gradients.grad_logits = absent(key.x, {b, v});
  }
  return r;
}

template <class Completion>
Dispatch finish(Completion&& completion) {
  completion.wait();
  return completion.dispatch();
}

}  // namespace

Dispatch call(Context& context, const Row& row, const Options& options, const Arrays& arrays) {
  const auto a = arguments_of(row, arrays);
  if (row.linear()) {
    const auto e = linear_execution(row, options);
    switch (row.pass) {
      case Pass::forward:
        return finish(lce::forward(context, a.linear, a.outputs, loss_options, e));
      case Pass::backward:
        return finish(lce::backward(context, a.linear, a.linear_gradients, loss_options, e));
      default:
        return finish(
            lce::value_and_grad(context, a.linear, a.outputs, a.linear_gradients, loss_options, e));
    }
  }
  const auto e = softmax_execution(row, options);
  switch (row.pass) {
    case Pass::forward:
      return finish(sce::forward(context, a.softmax, a.outputs, loss_options, e));
    case Pass::backward:
      return finish(sce::backward(context, a.softmax, a.softmax_gradients, loss_options, e));
    default:
      return finish(
          sce::value_and_grad(context, a.softmax, a.outputs, a.softmax_gradients, loss_options, e));
  }
}

void call_forward(Context& context, const Row& row, const Options& options, const Arrays& arrays) {
  Row forward = row;
  forward.pass = Pass::forward;
  call(context, forward, options, arrays);
}

CostEstimate cost_of(Context& context, const Row& row, const Options& options) {
  const auto q = question_of(row);
  if (row.linear()) {
    return lce::cost_estimate(context, row.pass, q.linear, q.outputs, q.linear_gradients,
                              loss_options, linear_execution(row, options));
  }
  return sce::cost_estimate(context, row.pass, q.softmax, q.outputs, q.softmax_gradients,
                            loss_options, softmax_execution(row, options));
}

std::optional<std::string> why_not(Context& context, const Row& row, const Options& options) {
  const auto q = question_of(row);
  if (row.linear()) {
    auto e = linear_execution(row, options);
    e.implementation = {};
    return lce::why_unsupported(context, row.implementation, row.pass, q.linear, q.outputs,
                                q.linear_gradients, loss_options, e);
  }
  auto e = softmax_execution(row, options);
  e.implementation = {};
  return sce::why_unsupported(context, row.implementation, row.pass, q.softmax, q.outputs,
                              q.softmax_gradients, loss_options, e);
}

std::vector<ImplementationInfo> implementations_of(Operator op) {
  return op == Operator::linear_cross_entropy ? lce::implementations() : sce::implementations();
}

}  // namespace tessera::bench
