// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "host/linear/traits.hpp"
#include "tessera/linear_distillation.hpp"

namespace tessera::linear_distillation {

/// The operator as a type (host/operators/traits.hpp).
struct Operator {
  using Inputs = linear_distillation::Inputs;
  using Outputs = linear_distillation::Outputs;
  using Gradients = linear_distillation::Gradients;
  using Options = linear_distillation::Options;
  using Result = linear_distillation::Result;
  using Wants = tessera::Wants;
  using BlockSizes = linear_distillation::BlockSizes;
  using ExecutionOptions = linear_distillation::ExecutionOptions;
};

}  // namespace tessera::linear_distillation

template <>
struct tessera::OperatorTraits<tessera::linear_distillation::Operator>
    : linear::LayerTraits<linear_distillation::Operator> {
  using Outputs = Operator::Outputs;

  static constexpr const char* name = "linear_distillation";
  static constexpr auto passes = loss_passes;
  static constexpr auto inputs = with_loss_inputs<Inputs>({
      {"x", &Inputs::x, "[..., H]", ElementTypes::floating, Reads::always},
      {"w", &Inputs::w, "[H, V]", ElementTypes::floating, Reads::always, Layout::weight},
      {"bias", &Inputs::bias, "[V]", ElementTypes::floating, Reads::where_given},
      {"teacher_x", &Inputs::teacher_x, "[..., G]", ElementTypes::floating, Reads::usually},
      {"teacher_w", &Inputs::teacher_w, "[G, V]", ElementTypes::floating, Reads::usually,
       Layout::weight},
      {"teacher_bias", &Inputs::teacher_bias, "[V]", ElementTypes::floating, Reads::where_given},
      {"teacher_logits", &Inputs::teacher_logits, "[..., V]", ElementTypes::floating,
       Reads::in_place_of_usual},
      {"divergence_statistics", &Inputs::divergence_statistics, "[..., 5]", ElementTypes::f32,
       Reads::saved_besides},
  });
  static constexpr auto outputs = with_loss_outputs<Outputs, Result>({
      {"divergence", &Outputs::divergence, "[...]", ElementTypes::f32, &Result::divergence,
       &Wants::divergence},
      {"target_entropy", &Outputs::target_entropy, "[...]", ElementTypes::f32,
       &Result::target_entropy, &Wants::target_entropy},
      {"divergence_statistics", &Outputs::divergence_statistics, "[..., 5]", ElementTypes::f32,
       &Result::divergence_statistics, &Wants::divergence_statistics},
  });
  static constexpr auto options = [] {
    using linear_distillation::Options;
    // Logits over the temperature, its square and their products are far from the ends of f32.
    constexpr OptionRange divisor = {
        .least = 1e-6f, .most = 1e6f, .hint = "; logits are divided by it"};
    return with_loss_options<Options>({
        option<Options, &Options::divergence>("divergence",
                                              "of the student's distribution from the teacher's",
                                              {}, linear_distillation::divergence_names),
        option<Options, &Options::beta>("beta", "of jsd, in [0, 1]", share_range),
        option<Options, &Options::temperature>("temperature", "divides the logits of both",
                                               divisor),
        option<Options, &Options::alpha>("alpha", "share of the divergence, in [0, 1]",
                                         share_range),
        option<Options, &Options::teacher_logit_scale>("teacher_logit_scale",
                                                       "multiplies the teacher's logits"),
        option<Options, &Options::teacher_logit_soft_cap>(
            "teacher_logit_soft_cap", "of the teacher's; 0: off", soft_cap_range),
    });
  }();
  static constexpr auto execution_options =
      std::to_array({linear::dz_dtype_option<Operator::ExecutionOptions>()});
  static const operators::AnyOperator& behind();  ///< api.cpp
};
