// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "host/linear_cross_entropy/request.hpp"
#include "host/loss/results.hpp"
#include "tessera/linear_cross_entropy.hpp"

/// The way in: check the call, then hand it to the table.
namespace tessera::linear_cross_entropy {

namespace {

using loss::Form;

/// The context shares its state with a call in flight.
std::shared_ptr<ContextState> shared(Context& context) {
  return context.state().shared_from_this();
}

Completion run(Context& context, const Request& request) {
  return Completion(dispatch::run(table(), shared(context), request));
}

Result run_owned(Context& context, Pass pass, const Inputs& inputs, const LossOptions& options,
                 const ExecutionOptions& execution) {
  auto request =
      make_request(context.state(), pass, inputs, {}, {}, options, execution, Form::owned);
  Result result;
  loss::allocate_outputs(request.loss, result);
  loss::allocate(request.gradients.grad_x, result.grad_x, "grad_x");
  loss::allocate(request.gradients.grad_w, result.grad_w, "grad_w");
  loss::allocate(request.gradients.grad_bias, result.grad_bias, "grad_bias");
  auto completion = run(context, request);
  completion.wait();
  result.dispatch = completion.dispatch();
  return result;
}

std::pair<BlockSizes, BlockSource> blocks_of(const dispatch::Implementation<Request>& row,
                                             ContextState& state, const Request& request) {
  if (row.infer) return row.infer(state, request);
  if (request.execution.block_sizes) return {*request.execution.block_sizes, BlockSource::caller};
  return {BlockSizes::get_default(), BlockSource::fallback};
}

}  // namespace

Result forward(Context& context, const Inputs& inputs, const LossOptions& options,
               const ExecutionOptions& execution) {
  return run_owned(context, Pass::forward, inputs, options, execution);
}

Result backward(Context& context, const Inputs& inputs, const LossOptions& options,
                const ExecutionOptions& execution) {
  return run_owned(context, Pass::backward, inputs, options, execution);
}

Result value_and_grad(Context& context, const Inputs& inputs, const LossOptions& options,
                      const ExecutionOptions& execution) {
  return run_owned(context, Pass::value_and_grad, inputs, options, execution);
}

PartialResult forward_partial(Context& context, const Inputs& inputs, const LossOptions& options,
                              const ExecutionOptions& execution) {
  auto request = make_request(context.state(), Pass::forward_partial, inputs, {}, {}, options,
                              execution, Form::owned);
  PartialResult result;
  loss::allocate_partial(request.loss, result);
  auto completion = run(context, request);
  completion.wait();
  result.dispatch = completion.dispatch();
  return result;
}

Completion forward(Context& context, const Inputs& inputs, const Outputs& outputs,
                   const LossOptions& options, const ExecutionOptions& execution) {
  return run(context, make_request(context.state(), Pass::forward, inputs, outputs, {}, options,
                                   execution, Form::views));
}

Completion backward(Context& context, const Inputs& inputs, const Gradients& gradients,
                    const LossOptions& options, const ExecutionOptions& execution) {
  return run(context, make_request(context.state(), Pass::backward, inputs, {}, gradients, options,
                                   execution, Form::views));
}

Completion value_and_grad(Context& context, const Inputs& inputs, const Outputs& outputs,
                          const Gradients& gradients, const LossOptions& options,
                          const ExecutionOptions& execution) {
  return run(context, make_request(context.state(), Pass::value_and_grad, inputs, outputs,
                                   gradients, options, execution, Form::views));
}

Plan plan(Context& context, Pass pass, const Inputs& inputs, const Outputs& outputs,
          const Gradients& gradients, const LossOptions& options,
          const ExecutionOptions& execution) {
  const auto request = make_request(context.state(), pass, inputs, outputs, gradients, options,
                                    execution, Form::question);
  return dispatch::plan(table(), context.state(), request);
}

std::optional<std::string> why_unsupported(Context& context, const std::string& implementation,
                                           Pass pass, const Inputs& inputs, const Outputs& outputs,
                                           const Gradients& gradients, const LossOptions& options,
                                           const ExecutionOptions& execution) {
  dispatch::require_name(table(), implementation);
  Request request;
  try {
    request = make_request(context.state(), pass, inputs, outputs, gradients, options, execution,
                           Form::question);
  } catch (const Error& error) {
    return error.what();  // no implementation serves a call that is wrong in itself
  }
  return dispatch::why_unsupported(table(), context.state(), request, implementation);
}

std::vector<ImplementationInfo> implementations() { return dispatch::list(table()); }

CostEstimate cost_estimate(Context& context, Pass pass, const Inputs& inputs,
                           const Outputs& outputs, const Gradients& gradients,
                           const LossOptions& options, const ExecutionOptions& execution) {
  auto& state = context.state();
  const auto request =
      make_request(state, pass, inputs, outputs, gradients, options, execution, Form::question);
  const auto& row = dispatch::choose(table(), state, request);
  return cost(request, blocks_of(row, state, request).first,
              row.formed ? row.formed(state, request) : 1);
}

std::pair<BlockSizes, BlockSource> infer_block_sizes(Context& context,
                                                     const std::string& implementation, Pass pass,
                                                     std::int64_t b, std::int64_t h, std::int64_t v,
                                                     DType x_type, DType w_type) {
  auto& state = context.state();
  const auto shape = [](DType type, const Dims& extents) {
    return View::host(nullptr, type, extents);
  };
  Inputs inputs{
      .x = shape(x_type, {b, h}), .labels = shape(DType::i32, {b}), .w = shape(w_type, {h, v})};
  if (pass == Pass::backward) inputs.statistics = shape(DType::f32, {b, 2});
  const auto request = make_request(state, pass, inputs, {}, {}, {},
                                    {.implementation = implementation}, Form::question);
  return blocks_of(dispatch::choose(table(), state, request), state, request);
}

}  // namespace tessera::linear_cross_entropy
