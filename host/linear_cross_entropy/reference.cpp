// SPDX-License-Identifier: Apache-2.0
#include "host/linear_cross_entropy/request.hpp"
#include "host/loss/reference_loss.hpp"

namespace tessera::linear_cross_entropy {
namespace {

// x, w and their gradients are copied in double: 2^30 elements are 8 GiB a copy.
constexpr double max_elements = 1073741824.0;

std::optional<std::string> reference_refuses(ContextState&, const Request& request) {
  if (auto reason = loss::reference_refusal(request.loss)) return reason;
  const auto h = static_cast<double>(request.h);
  const auto b = static_cast<double>(request.loss.b);
  const auto v = static_cast<double>(request.loss.v);
  if (b * h > max_elements || h * v > max_elements) {
    return "it copies x and w in double, and B * H or H * V is beyond its limit of 2^30 (B = " +
           std::to_string(request.loss.b) + ", H = " + std::to_string(request.h) +
           ", V = " + std::to_string(request.loss.v) + "); use eigen";
  }
  return std::nullopt;
}

/// What the oracle's matrices take.
std::int64_t workspace_bytes(const Request& request) {
  const std::int64_t b = request.loss.b, h = request.h, v = request.loss.v;
  // x twice (rows that do not count are cleared in a copy), w and the final logits.
  std::int64_t elements = 2 * b * h + h * v + b * v;
  // dz and the gradients.
  if (request.loss.wants_gradients()) elements += b * v + b * h + h * v + v;
  return elements * static_cast<std::int64_t>(sizeof(double));
}

/// What it reports, for `run` and `plan`; throws when the caller's workspace is too small.
void describe(const Request& request, Dispatch& dispatch) {
  dispatch.implementation = "reference";
  dispatch.device = "host";
  dispatch.schedule = "textbook";
  dispatch.workspace_bytes = workspace_bytes(request);
  loss::check_fixed_workspace("reference, which materialises everything in double,",
                              request.execution.workspace_bytes, request.execution.workspace,
                              dispatch.workspace_bytes);
  // The textbook has no blocks; any are legal and none is used.
  const auto blocks = request.execution.block_sizes.value_or(BlockSizes::get_default());
  dispatch.block_source =
      request.execution.block_sizes ? BlockSource::caller : BlockSource::fallback;
  dispatch.block_sizes = {{"b_block_size", blocks.b_block_size},
                          {"h_block_size", blocks.h_block_size},
                          {"v_block_size", blocks.v_block_size}};
}

oracle::Problem read_problem(ContextState& state, const Request& request) {
  dispatch::HostViews views(state, request.execution.queue);
  auto problem = loss::reference_problem(request.loss, views);
  problem.h = request.h;
  problem.x = loss::read_matrix(views.read(request.x), problem.b, problem.h, &problem);
  problem.w = loss::read_matrix(views.read(request.w), problem.h, problem.v);
  problem.bias = loss::read_vector(views.read(request.bias), problem.v);
  views.finish();
  return problem;
}

void write_gradients(const Request& request, const oracle::Gradients& gradients,
                     dispatch::HostViews& views) {
  const auto& targets = request.gradients;
  const std::int64_t b = request.loss.b, h = request.h, v = request.loss.v;
  if (targets.grad_x) {
    loss::write_matrix(views.write(targets.grad_x), gradients.grad_x, b, h,
                       targets.accumulate.has(Accumulate::grad_x));
  }
  if (targets.grad_w) {
    loss::write_matrix(views.write(targets.grad_w), gradients.grad_w, h, v,
                       targets.accumulate.has(Accumulate::grad_w));
  }
  if (targets.grad_bias) {
    loss::write_matrix(views.write(targets.grad_bias), gradients.grad_bias, 1, v,
                       targets.accumulate.has(Accumulate::grad_bias));
  }
}

std::unique_ptr<Completion::State> run_reference(const std::shared_ptr<ContextState>& state,
                                                 const Request& request,
                                                 dispatch::Attempt& attempt) {
  describe(request, attempt.dispatch);
  if (state->device) state->device->wait_for(request.execution.wait_for);
  const auto problem = read_problem(*state, request);
  oracle::Values values;
  oracle::Gradients gradients;
  if (request.loss.wants_values()) values = oracle::forward(problem);
  if (request.loss.wants_gradients()) gradients = oracle::backward(problem);

  // The inputs are unmapped by now, so that an output may share their memory object.
  dispatch::HostViews views(*state, request.execution.queue);
  const auto& outputs = request.loss.outputs;
  const auto& targets = request.gradients;
  const MutableView* const writes[] = {
      &outputs.loss,      &outputs.lse,        &outputs.argmax,      &outputs.label_logprob,
      &outputs.entropy,   &outputs.z_loss,     &targets.grad_x,      &targets.grad_w,
      &targets.grad_bias, &outputs.statistics, &request.loss.partial};
  attempt.outputs_touched = true;
  views.reserve({}, writes);
  if (request.loss.wants_values()) loss::write_values(request.loss, values, views);
  if (request.loss.wants_gradients()) write_gradients(request, gradients, views);
  views.finish();
  return loss::reference_completion(problem);
}

Plan plan_reference(ContextState&, const Request& request) {
  Plan plan;
  describe(request, plan.dispatch);
  plan.workspace_bytes = plan.minimum_workspace_bytes = plan.dispatch.workspace_bytes;
  return plan;
}

}  // namespace

dispatch::Implementation<Request> reference_implementation() {
  return {"reference",   "textbook, in double, with the logits materialised; B * V up to 2^26",
          false,         reference_refuses,
          run_reference, plan_reference};
}

}  // namespace tessera::linear_cross_entropy
