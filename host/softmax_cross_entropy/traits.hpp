// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "host/loss/traits.hpp"
#include "tessera/softmax_cross_entropy.hpp"

namespace tessera::softmax_cross_entropy {

/// The operator as a type (host/operators/traits.hpp).
struct Operator {
  using Inputs = softmax_cross_entropy::Inputs;
  using Outputs = tessera::Outputs;
  using Gradients = softmax_cross_entropy::Gradients;
  using Options = LossOptions;
  using Result = softmax_cross_entropy::Result;
  using Wants = tessera::Wants;
  using BlockSizes = softmax_cross_entropy::BlockSizes;
  using ExecutionOptions = softmax_cross_entropy::ExecutionOptions;
};

}  // namespace tessera::softmax_cross_entropy

template <>
struct tessera::OperatorTraits<tessera::softmax_cross_entropy::Operator>
    : softmax_cross_entropy::Operator {
  static constexpr const char* name = "softmax_cross_entropy";
  static constexpr auto passes = loss_passes;
  static constexpr auto inputs = with_loss_inputs<Inputs>({
      {"logits", &Inputs::logits, "[..., V]", ElementTypes::floating, Reads::always},
  });
  static constexpr auto outputs = loss_outputs;
  static constexpr std::array<GradientArgument<Operator>, 1> gradients = {{
      {"grad_logits",
       &Gradients::grad_logits,
       &Inputs::logits,
       &Result::grad_logits,
       nullptr,
       {},
       true},
  }};
  static constexpr auto options = all_loss_options<LossOptions>;
  static constexpr std::array<OptionArgument<ExecutionOptions>, 0> execution_options{};
  static bool accumulates(const Gradients& given, std::size_t) { return given.accumulate; }
  static const Wants& wants(const Options& given) { return loss_options(given).wants; }
  static const operators::AnyOperator& behind();  ///< api.cpp
};
