// SPDX-License-Identifier: Apache-2.0
#include "host/loss/operator.hpp"

#include <algorithm>
#include <string_view>

#include "host/loss/results.hpp"
#include "host/loss/traits.hpp"
#include "host/loss/validate.hpp"

namespace tessera::loss {

LossPlaces::LossPlaces(const operators::Description& op) {
  const auto place_of = [](const auto& all, std::string_view name) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
    return static_cast<std::size_t>(found - all.begin());
  };
  // In the order of LossInput.
  constexpr std::array<std::string_view, 10> names = {
      "labels", "weight",     "class_weight",   "dloss",        "dlse",
      "lse",    "statistics", "target_indices", "target_probs", "targets"};
  for (std::size_t i = 0; i < names.size(); ++i) places_[i] = place_of(op.inputs, names[i]);
  own_ = places_[0];
  options_ = place_of(op.options, all_loss_options<LossOptions>[0].name);
}

LossOptions LossPlaces::options_of(const operators::Call& call) const {
  LossOptions options;
  std::size_t at = options_;
  for (const auto& option : all_loss_options<LossOptions>) option.set(options, call.options[at++]);
  return options;
}

void LossOperator::check(const ContextState& state, operators::Call&& given, operators::Form form,
                         const std::function<void(operators::Request&)>& use) const {
  using operators::Form;
  LossRequest r(places_, std::move(given));
  operators::Call& call = r.call;
  arguments::Checks checks(&state, r.operation(), form);
  operators::Symbols symbols;
  operators::check_inputs(checks, call, 0, places_.own(), symbols);
  operators::check_options(checks, call);
  check_loss(checks, r, places_.options_of(call), nll_weight(call), symbols.leading(),
             symbols.extent('V'), symbols.leading_source());
  operators::check_gradients(checks, call);
  operators::check_execution(checks, call);
  check_own(checks, r);

  const bool nothing_given = !r.wants_any_output() && !r.wants_any_gradient();
  if (form == Form::owned || (form == Form::question && nothing_given)) {
    if (call.pass == Pass::forward || call.pass == Pass::value_and_grad) describe_outputs(r);
    if (has_gradients(call.pass)) operators::describe_gradients(call);
  }
  if (call.pass == Pass::forward_partial) describe_partial(r, own_partial_words());
  operators::require_results(checks, r, form);
  operators::check_overlaps(checks, call);
  if (form != Form::question) check_targets(checks, r, call.wait_for);
  use(r);
}

}  // namespace tessera::loss
