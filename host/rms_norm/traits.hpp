// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "host/operators/traits.hpp"
#include "tessera/rms_norm.hpp"

namespace tessera::rms_norm {

/// The operator as a type (host/operators/traits.hpp).
struct Operator {
  using Inputs = rms_norm::Inputs;
  using Outputs = rms_norm::Outputs;
  using Gradients = rms_norm::Gradients;
  using Options = rms_norm::Options;
  using Result = rms_norm::Result;
  using Wants = rms_norm::Wants;
  using BlockSizes = rms_norm::BlockSizes;
  using ExecutionOptions = rms_norm::ExecutionOptions;
};

}  // namespace tessera::rms_norm

template <>
struct tessera::OperatorTraits<tessera::rms_norm::Operator> : rms_norm::Operator {
  static constexpr const char* name = "rms_norm";
  static constexpr std::array passes = {Pass::forward, Pass::backward};
  static constexpr std::array<InputArgument<Inputs>, 3> inputs = {{
      {"x", &Inputs::x, "[..., H]", ElementTypes::floating, Reads::always},
      {"scale", &Inputs::scale, "[H]", ElementTypes::floating, Reads::where_given},
      {"dy", &Inputs::dy, "[..., H]", ElementTypes::floating, Reads::by_backward},
  }};
  static constexpr std::array<OutputArgument<Outputs, Result, Wants>, 1> outputs = {
      {{"y", &Outputs::y, "[..., H]", ElementTypes::floating, &Result::y, nullptr, "x"}}};
  static constexpr std::array<GradientArgument<Operator>, 2> gradients = {{
      {"grad_x", &Gradients::grad_x, &Inputs::x, &Result::grad_x, &Wants::grad_x, {}, true},
      {"grad_scale", &Gradients::grad_scale, &Inputs::scale, &Result::grad_scale,
       &Wants::grad_scale, DType::f32, false},
  }};
  static constexpr auto options =
      std::to_array({option<Options, &Options::epsilon>(
                         "epsilon", "added to the mean of the squares", {.least = 0}),
                     option<Options, &Options::offset>("offset", "added to scale")});
  static constexpr std::array<OptionArgument<ExecutionOptions>, 0> execution_options{};
  static const Wants& wants(const Options& given) { return given.wants; }
  static bool accumulates(const Gradients& given, std::size_t) { return given.accumulate; }
  static const operators::AnyOperator& behind();  ///< api.cpp
};
