// SPDX-License-Identifier: Apache-2.0
#include "host/loss/reference_loss.hpp"
#include "host/softmax_cross_entropy/request.hpp"

namespace tessera::softmax_cross_entropy {
namespace {

std::optional<std::string> reference_refuses(ContextState&, const Request& request) {
  return loss::reference_refusal(request.loss);
}

/// What it reports, for `run` and `plan`; throws when the caller's workspace is too small.
void describe(const Request& request, Dispatch& dispatch) {
  dispatch.implementation = "reference";
  dispatch.device = "host";
  dispatch.schedule = "textbook";
  // The given and the final logits; dz and its copy.
  const std::int64_t copies = request.loss.wants_gradients() ? 4 : 2;
  dispatch.workspace_bytes =
      copies * request.loss.b * request.loss.v * static_cast<std::int64_t>(sizeof(double));
  loss::check_fixed_workspace("reference, which materialises everything in double,",
                              request.execution.workspace_bytes, request.execution.workspace,
                              dispatch.workspace_bytes);
  // The textbook has no blocks; any are legal and none is used.
  const auto blocks = request.execution.block_sizes.value_or(BlockSizes::get_default());
  dispatch.block_source =
      request.execution.block_sizes ? BlockSource::caller : BlockSource::fallback;
  dispatch.block_sizes = {{"b_block_size", blocks.b_block_size},
                          {"v_block_size", blocks.v_block_size}};
}

oracle::Problem read_problem(ContextState& state, const Request& request) {
  dispatch::HostViews views(state, request.execution.queue);
  auto problem = loss::reference_problem(request.loss, views);
  problem.h = -1;
  problem.logits = loss::read_matrix(views.read(request.logits), problem.b, problem.v, &problem);
  views.finish();
  return problem;
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

  // The inputs are unmapped by now: the gradient may be the view of the logits.
  dispatch::HostViews views(*state, request.execution.queue);
  const auto& outputs = request.loss.outputs;
  const auto& target = request.gradients.grad_logits;
  const MutableView* const writes[] = {
      &outputs.loss,          &outputs.lse,     &outputs.argmax,
      &outputs.label_logprob, &outputs.entropy, &outputs.z_loss,
      &outputs.statistics,    &target,          &request.loss.partial};
  attempt.outputs_touched = true;
  views.reserve({}, writes);
  if (request.loss.wants_values()) loss::write_values(request.loss, values, views);
  if (target) {
    loss::write_matrix(views.write(target), gradients.grad_logits, problem.b, problem.v,
                       request.gradients.accumulate);
  }
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
  return {"reference",   "textbook, in double; B * V up to 2^26",
          false,         reference_refuses,
          run_reference, plan_reference};
}

}  // namespace tessera::softmax_cross_entropy
