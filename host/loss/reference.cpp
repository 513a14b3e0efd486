// SPDX-License-Identifier: Apache-2.0
#include "host/loss/reference.hpp"

#include "host/arguments/workspace.hpp"
#include "host/loss/traits.hpp"

namespace tessera::loss {

void Reference::describe(const LossRequest& request, Dispatch& dispatch) const {
  const auto& call = request.call;
  dispatch.implementation = "reference";
  dispatch.device = "host";
  dispatch.schedule = "textbook";
  dispatch.workspace_bytes = workspace_bytes(request);
  arguments::check_fixed_workspace("reference, which materialises everything in double,",
                                   call.workspace_bytes, call.workspace, dispatch.workspace_bytes);
  std::tie(dispatch.block_sizes, dispatch.block_source) = operators::given_or_default_blocks(call);
}

std::optional<std::string> Reference::why_unsupported(ContextState&,
                                                      const dispatch::Request& request) const {
  auto reason = reference_refusal(loss_request(request));
  return reason ? reason : refuses(loss_request(request));
}

std::unique_ptr<Completion::State> Reference::run(const std::shared_ptr<ContextState>& state,
                                                  const dispatch::Request& given,
                                                  dispatch::Attempt& attempt) const {
  const auto& request = loss_request(given);
  const auto& call = request.call;
  describe(request, attempt.dispatch);
  if (state->device) state->device->wait_for(call.wait_for);
  oracle::Problem problem;
  std::string bad;
  {
    dispatch::HostViews views(*state, call.queue);
    problem = reference_problem(request, views, bad);
    read(request, views, problem);
    views.finish();
  }
  oracle::Values values;
  oracle::Gradients gradients;
  if (request.wants_values()) values = oracle::forward(problem);
  if (has_gradients(call.pass)) gradients = oracle::backward(problem);

  // The inputs are unmapped by now: an output may be an input's view, or share its memory object.
  dispatch::HostViews views(*state, call.queue);
  std::vector<const MutableView*> writes;
  request.for_writes([&](const char*, const MutableView& view) { writes.push_back(&view); });
  attempt.outputs_touched = true;
  views.reserve({}, writes);
  if (request.wants_values()) {
    write_values(request, values, views);
    for (std::size_t i = 0; i < names_.own_outputs.size(); ++i) {
      write_vector(call.outputs[loss_output_count + i], values.*names_.own_outputs[i], views);
    }
    if (request.own_partial) {
      write_vector(request.own_partial, values.*names_.own_partial, views);
    }
  }
  for (std::size_t i = 0; i < call.gradients.size(); ++i) {
    if (!call.gradients[i]) continue;
    write_matrix(views.write(call.gradients[i]), gradients.*names_.gradients[i],
                 call.accumulate[i]);
  }
  views.finish();
  return finished(bad);
}

Plan Reference::plan(ContextState&, const dispatch::Request& request) const {
  Plan plan;
  describe(loss_request(request), plan.dispatch);
  plan.workspace_bytes = plan.minimum_workspace_bytes = plan.dispatch.workspace_bytes;
  return plan;
}

std::pair<std::vector<NamedValue>, BlockSource> Reference::infer(
    ContextState&, const dispatch::Request& request) const {
  return operators::given_or_default_blocks(loss_request(request).call);
}

}  // namespace tessera::loss
