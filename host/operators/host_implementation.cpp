// SPDX-License-Identifier: Apache-2.0
#include "host/operators/host_implementation.hpp"

#include "host/arguments/workspace.hpp"
#include "host/dispatch/completion.hpp"

namespace tessera::operators {

Dispatch HostImplementation::described(const ContextState& state,
                                       const dispatch::Request& request) const {
  const auto& r = static_cast<const Request&>(request);
  Dispatch dispatch;
  describe(state, r, dispatch);
  dispatch.implementation = name();
  if (!minimum_workspace_bytes(state, r)) {
    arguments::check_fixed_workspace((name() + ", which allocates for itself,").c_str(),
                                     r.call.workspace_bytes, r.call.workspace,
                                     dispatch.workspace_bytes);
  }
  return dispatch;
}

std::unique_ptr<Completion::State> HostImplementation::run(
    const std::shared_ptr<ContextState>& state, const dispatch::Request& request,
    dispatch::Attempt& attempt) const {
  const auto& given = static_cast<const Request&>(request);
  const Call& call = given.call;
  attempt.dispatch = described(*state, request);
  if (state->device) state->device->wait_for(call.wait_for);
  dispatch::HostViews views(*state, call.queue);
  PlainRequest mapped{Call(call)};
  mapped.map_to_host(views);
  check_values(*state, mapped);
  std::optional<dispatch::HostWorkspace> workspace;
  if (minimum_workspace_bytes(*state, given)) {
    workspace.emplace(*state, views, call.workspace, attempt.dispatch.workspace_bytes);
  }
  attempt.outputs_touched = true;
  compute(*state, mapped, attempt.dispatch, workspace ? workspace->data() : nullptr);
  views.finish();
  return std::make_unique<Completion::State>();
}

Plan HostImplementation::plan(ContextState& state, const dispatch::Request& request) const {
  Plan plan;
  plan.dispatch = described(state, request);
  plan.workspace_bytes = plan.dispatch.workspace_bytes;
  plan.minimum_workspace_bytes =
      minimum_workspace_bytes(state, static_cast<const Request&>(request))
          .value_or(plan.workspace_bytes);
  return plan;
}

std::pair<std::vector<NamedValue>, BlockSource> HostImplementation::infer(
    ContextState& state, const dispatch::Request& request) const {
  Dispatch dispatch;
  describe(state, static_cast<const Request&>(request), dispatch);
  return {dispatch.block_sizes, dispatch.block_source};
}

}  // namespace tessera::operators
