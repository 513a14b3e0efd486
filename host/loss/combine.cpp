// SPDX-License-Identifier: Apache-2.0
#include <new>

#include "host/arguments/owned.hpp"
#include "host/dispatch/guarded.hpp"
#include "host/loss/merge.hpp"
#include "host/loss/traits.hpp"

namespace tessera {
namespace {

/// Inputs, as `loss_inputs` names them.
struct LossInputs {
  View labels{}, weight{}, class_weight{}, dloss{}, dlse{}, lse{}, statistics{};
  View target_indices{}, target_probs{}, targets{};
};

/// A loss without the operator that its logits come from.
operators::Description loss_alone() {
  operators::Description op{.name = "combine",
                            .passes = {Pass::forward},
                            .inputs = {},
                            .outputs = {},
                            .gradients = {},
                            .options = {},
                            .block_sizes = {},
                            .behind = nullptr};
  for (const auto& each : loss_inputs<LossInputs>) {
    op.inputs.push_back({each.name, each.shape, each.types, each.reads});
  }
  for (const auto& each : loss_outputs)
    op.outputs.push_back({each.name, each.shape, each.types, each.wanted == nullptr});
  for (const auto& each : all_loss_options<LossOptions>) {
    op.options.push_back(described(each));
  }
  return op;
}

}  // namespace

LossResult combine(std::span<const PartialResult> shards, const CombineInputs& inputs,
                   const LossOptions& options) try {
  const auto merged = merge(shards);
  const auto op = loss_alone();
  const loss::LossPlaces places(op);
  operators::Call call(op, Pass::forward);
  std::size_t at = 0;
  for (const auto& each : all_loss_options<LossOptions>) call.options[at++] = each.value(options);
  at = 0;
  for (const auto& each : loss_outputs) {
    call.wants[at++] = is_wanted(each, options.wants);
  }
  arguments::Checks checks(nullptr, "combine", arguments::Form::owned);
  operators::check_options(checks, call);
  loss::LossRequest request(places, std::move(call));
  loss::check_combine(checks, request, merged, inputs, options, std::nullopt);
  LossResult result;
  at = 0;
  for (const auto& each : loss_outputs) {
    arguments::allocate(request.call.outputs[at++], result.*each.owned, each.name);
  }
  loss::combine_rows(request, merged, {}, result);
  return result;
} catch (const std::bad_alloc&) {
  dispatch::throw_no_memory("combine");
}

}  // namespace tessera
