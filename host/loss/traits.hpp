// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "host/operators/traits.hpp"
#include "tessera/loss.hpp"

/// What a loss adds to the description of an operator: the inputs, outputs and options that every
/// loss has. Of the letters of its shapes, T is the columns of the whole vocabulary (V without
/// shards) and K the pairs of a soft target.
namespace tessera {

/// The loss's half of an operator's options: those, or their member `loss`.
template <class Options>
constexpr auto& loss_options(Options& options) noexcept {
  if constexpr (requires { options.loss; }) {
    return options.loss;
  } else {
    return options;
  }
}

struct LossPart {
  static constexpr auto& of(auto& options) noexcept { return loss_options(options); }
};

inline constexpr OptionRange soft_cap_range = {.least = 0, .hint = ", which turns it off"};

/// The inputs that every loss has, class weights where `Inputs` has such a member; it is any struct
/// with the others.
template <class Inputs>
inline constexpr auto loss_inputs = [] {
  using Argument = InputArgument<Inputs>;
  constexpr auto classes = [] {
    if constexpr (requires(Inputs in) { in.class_weight; }) {
      return std::array<Argument, 1>{{{"class_weight", &Inputs::class_weight, "[T]",
                                       ElementTypes::floating, Reads::where_given}}};
    } else {
      return std::array<Argument, 0>{};
    }
  }();
  constexpr std::array<Argument, 2> first = {{
      {"labels", &Inputs::labels, "[...]", ElementTypes::integer, Reads::always},
      {"weight", &Inputs::weight, "[...]", ElementTypes::floating, Reads::where_given},
  }};
  constexpr std::array<Argument, 7> others = {{
      {"dloss", &Inputs::dloss, "() or [...]", ElementTypes::floating, Reads::with_gradients},
      {"dlse", &Inputs::dlse, "[...]", ElementTypes::floating, Reads::with_gradients},
      {"lse", &Inputs::lse, "[...]", ElementTypes::f32, Reads::in_backward},
      {"statistics", &Inputs::statistics, "[..., 2]", ElementTypes::f32, Reads::in_backward},
      {"target_indices", &Inputs::target_indices, "[..., K]", ElementTypes::integer,
       Reads::in_place_of_labels},
      {"target_probs", &Inputs::target_probs, "[..., K]", ElementTypes::floating,
       Reads::in_place_of_labels},
      {"targets", &Inputs::targets, "[..., T]", ElementTypes::floating, Reads::in_place_of_labels},
  }};
  return joined(joined(first, classes), others);
}();

/// An operator's `own` inputs, then those of every loss.
template <class Inputs, std::size_t count>
constexpr auto with_loss_inputs(const InputArgument<Inputs> (&own)[count]) {
  return joined(std::to_array(own), loss_inputs<Inputs>);
}

/// The outputs that every loss has.
inline constexpr std::array<OutputArgument<Outputs, LossResult, Wants>, 7> loss_outputs = {{
    {"loss", &Outputs::loss, "() or [...]", ElementTypes::f32, &LossResult::loss, nullptr},
    {"lse", &Outputs::lse, "[...]", ElementTypes::f32, &LossResult::lse, &Wants::lse},
    {"argmax", &Outputs::argmax, "[...]", ElementTypes::integer, &LossResult::argmax,
     &Wants::argmax},
    {"label_logprob", &Outputs::label_logprob, "[...]", ElementTypes::f32,
     &LossResult::label_logprob, &Wants::label_logprob},
    {"entropy", &Outputs::entropy, "[...]", ElementTypes::f32, &LossResult::entropy,
     &Wants::entropy},
    {"z_loss", &Outputs::z_loss, "[...]", ElementTypes::f32, &LossResult::z_loss, &Wants::z_loss},
    {"statistics", &Outputs::statistics, "[..., 2]", ElementTypes::f32, &LossResult::statistics,
     &Wants::statistics},
}};

inline constexpr std::size_t loss_output_count = loss_outputs.size();

/// The outputs of every loss, then an operator's `own`; Outputs and Result derive from the loss's.
template <class Outputs, class Result, std::size_t count>
constexpr auto with_loss_outputs(const OutputArgument<Outputs, Result, Wants> (&own)[count]) {
  const auto widened = [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::array<OutputArgument<Outputs, Result, Wants>, loss_output_count>{
        OutputArgument<Outputs, Result, Wants>{loss_outputs[i].name, loss_outputs[i].view,
                                               loss_outputs[i].shape, loss_outputs[i].types,
                                               loss_outputs[i].owned, loss_outputs[i].wanted}...};
  };
  return joined(widened(std::make_index_sequence<loss_output_count>()), std::to_array(own));
}

/// Wants that ask for all optional outputs of this list.
template <class OutputArguments>
constexpr Wants every_one(const OutputArguments& outputs) {
  Wants wants;
  for (const auto& output : outputs) {
    if (output.wanted != nullptr) wants.*output.wanted = true;
  }
  return wants;
}

/// Wants that ask for all optional outputs of every loss, or of one operator, which may have more.
constexpr Wants every_output() { return every_one(loss_outputs); }
template <class Operator>
constexpr Wants every_output() {
  return every_one(OperatorTraits<Operator>::outputs);
}

/// The passes of every loss.
inline constexpr std::array loss_passes = {Pass::forward, Pass::backward, Pass::value_and_grad,
                                           Pass::forward_partial};

/// An operator's options, the default but for their loss's half.
template <class Operator>
typename Operator::Options options_with(const LossOptions& loss) {
  if constexpr (requires(typename Operator::Options o) { o.loss; }) {
    typename Operator::Options options;
    options.loss = loss;
    return options;
  } else {
    return loss;
  }
}

template <class Options, auto member>
constexpr OptionArgument<Options> loss_option(const char* name, const char* help,
                                              OptionRange range = {},
                                              std::span<const char* const> choices = {}) {
  return option<Options, member, LossPart>(name, help, range, choices);
}

/// The options of every loss.
template <class Options>
inline constexpr std::array<OptionArgument<Options>, 8> all_loss_options = {{
    loss_option<Options, &LossOptions::logsumexp_weight>("logsumexp_weight",
                                                         "weight of the z-loss, lse^2"),
    loss_option<Options, &LossOptions::logit_scale>("logit_scale", "multiplies the logits"),
    loss_option<Options, &LossOptions::logit_soft_cap>(
        "logit_soft_cap", "cap * tanh(logit / cap); 0: off", soft_cap_range),
    loss_option<Options, &LossOptions::label_smoothing>("label_smoothing", "in [0, 1]",
                                                        share_range),
    loss_option<Options, &LossOptions::ignore_index>("ignore_index",
                                                     "rows with this label do not count"),
    loss_option<Options, &LossOptions::reduction>(
        "reduction", "how per-token losses become the loss", {}, reduction_names),
    loss_option<Options, &LossOptions::vocab_offset>("vocab_offset", "first column of this shard",
                                                     {.least = 0}),
    loss_option<Options, &LossOptions::vocab_size_total>(
        "vocab_size_total", "columns of the whole vocabulary; 0: this call has it all",
        {.least = 0, .hint = " (no shard)"}),
}};

/// An operator's `own` options, then those of every loss.
template <class Options, std::size_t count>
constexpr auto with_loss_options(const OptionArgument<Options> (&own)[count]) {
  return joined(std::to_array(own), all_loss_options<Options>);
}

}  // namespace tessera
