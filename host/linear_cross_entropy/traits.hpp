// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "host/linear/traits.hpp"
#include "tessera/linear_cross_entropy.hpp"

namespace tessera::linear_cross_entropy {

/// The operator as a type (host/operators/traits.hpp).
struct Operator {
  using Inputs = linear_cross_entropy::Inputs;
  using Outputs = tessera::Outputs;
  using Gradients = linear_cross_entropy::Gradients;
  using Options = LossOptions;
  using Result = linear_cross_entropy::Result;
  using Wants = tessera::Wants;
  using BlockSizes = linear_cross_entropy::BlockSizes;
  using ExecutionOptions = linear_cross_entropy::ExecutionOptions;
};

}  // namespace tessera::linear_cross_entropy

template <>
struct tessera::OperatorTraits<tessera::linear_cross_entropy::Operator>
    : linear::LayerTraits<linear_cross_entropy::Operator> {
  static constexpr const char* name = "linear_cross_entropy";
  static constexpr auto passes = loss_passes;
  static constexpr auto inputs = with_loss_inputs<Inputs>({
      {"x", &Inputs::x, "[..., H]", ElementTypes::floating, Reads::always},
      {"w", &Inputs::w, "[H, V]", ElementTypes::floating, Reads::always, Layout::weight},
      {"bias", &Inputs::bias, "[V]", ElementTypes::floating, Reads::where_given},
  });
  static constexpr auto outputs = loss_outputs;
  static constexpr auto options = all_loss_options<LossOptions>;
  static constexpr auto execution_options = [] {
    using Execution = Operator::ExecutionOptions;
    constexpr OptionRange probability = {
        .least = 0,
        .most = 1,
        .below_most = true,
        .hint = ": a probability below which gradients may be left out, such as 2^-12"};
    return std::to_array(
        {option<Execution, &Execution::gradient_filter_eps>(
             "gradient_filter_eps", "probabilities below which gradients may be left out; 0: exact",
             probability),
         linear::dz_dtype_option<Execution>()});
  }();
  static const operators::AnyOperator& behind();  ///< api.cpp
};
