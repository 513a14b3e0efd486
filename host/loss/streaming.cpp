// SPDX-License-Identifier: Apache-2.0
#include "host/loss/streaming.hpp"

namespace tessera::loss {

std::unique_ptr<Completion::State> run_streaming(
    const std::shared_ptr<ContextState>& state, const LossRequest& request,
    std::int64_t workspace_bytes, dispatch::Attempt& attempt,
    const std::function<void(const StreamingCall&)>& walk) {
  const auto& given = request.call;
  if (state->device) state->device->wait_for(given.wait_for);
  dispatch::HostViews views(*state, given.queue);
  LossRequest mapped = request;
  mapped.map_to_host(views);
  const dispatch::HostWorkspace workspace(*state, views, given.workspace, workspace_bytes);
  streaming::Arena arena(workspace.data());
  const StreamingRows rows(mapped, arena);
  const auto threads = environment(*state);

  attempt.outputs_touched = true;
  walk({mapped, rows, threads, arena, workspace.data()});
  const auto& call = mapped.call;
  const auto& gradients = call.op->gradients;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!call.gradients[i] || !call.op->inputs[gradients[i].of].shape.has_leading()) continue;
    rows.fill_other_rows(call.gradients[i], call.accumulate[i], threads);
  }
  if (mapped.wants_values()) rows.write_values();
  auto completion = rows.completion();
  views.finish();
  return completion;
}

}  // namespace tessera::loss
