// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "host/loss/traits.hpp"
#include "tessera/linear_cross_entropy.hpp"

namespace tessera::linear {

/// The gradients of the operators whose logits are a layer, x [B, H] w [H, V] + bias [V].
template <class Op>
struct LayerTraits {
  using Operator = Op;
  using Inputs = typename Op::Inputs;
  using Gradients = typename Op::Gradients;
  using Result = typename Op::Result;
  using Accumulate = linear_cross_entropy::Accumulate;

  static constexpr std::array<GradientArgument<Op>, 3> gradients = {{
      {"grad_x", &Gradients::grad_x, &Inputs::x, &Result::grad_x, &Wants::grad_x, {}, false},
      {"grad_w", &Gradients::grad_w, &Inputs::w, &Result::grad_w, &Wants::grad_w, {}, false},
      {"grad_bias", &Gradients::grad_bias, &Inputs::bias, &Result::grad_bias, &Wants::grad_bias,
       DType::f32, false},
  }};
  static constexpr Accumulate accumulate_each[] = {Accumulate::grad_x, Accumulate::grad_w,
                                                   Accumulate::grad_bias};
  static bool accumulates(const Gradients& given, std::size_t at) {
    return given.accumulate.has(accumulate_each[at]);
  }
  static const Wants& wants(const typename Op::Options& given) { return loss_options(given).wants; }
};

/// What dz may be rounded to, an option of ExecutionOptions.
template <class Execution>
constexpr OptionArgument<Execution> dz_dtype_option() {
  return option<Execution, &Execution::dz_dtype>("dz_dtype",
                                                 "what dz may be rounded to: f32 or bf16");
}

}  // namespace tessera::linear
