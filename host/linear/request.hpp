// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "host/loss/request.hpp"
#include "host/operators/bind.hpp"
#include "tessera/linear_cross_entropy.hpp"

/// What the operators share whose logits are a product, x [B, H] w [H, V]: schedules and launches
/// on OpenCL (opencl/), and the walk of the host (walk.hpp). What becomes of logits is the
/// operator's own.
namespace tessera::linear {

using linear_cross_entropy::Accumulate;
using linear_cross_entropy::BlockSizes;

/// What these operators have in common of a call, by the names of their structs. It refers to the
/// call, which outlives it.
struct Request {
  struct {
    const View &x, &w, &bias;
  } inputs;
  struct {
    const MutableView &grad_x, &grad_w, &grad_bias;
    Accumulate accumulate;
  } gradients;
  struct {
    std::optional<BlockSizes> block_sizes;
    const std::optional<std::size_t>& workspace_bytes;
    const MutableView& workspace;
    std::span<const NamedValue> knobs;
    float gradient_filter_eps;  ///< 0 where the operator filters nothing
    std::optional<DType> dz_dtype;
  } execution;
  const loss::LossRequest& loss;
};

template <class Op>
Request request_of(const loss::LossRequest& r) {
  const operators::Call& call = r.call;
  using Inputs = typename Op::Inputs;
  const auto own = operators::execution_options_of<Op>(call);
  float gradient_filter_eps = 0.0f;
  if constexpr (requires { own.gradient_filter_eps; }) {
    gradient_filter_eps = own.gradient_filter_eps;
  }
  Accumulate accumulate{};
  for (std::size_t i = 0; i < call.accumulate.size(); ++i) {
    if (call.accumulate[i]) accumulate = accumulate | OperatorTraits<Op>::accumulate_each[i];
  }
  return {.inputs = {operators::input<Op, &Inputs::x>(call), operators::input<Op, &Inputs::w>(call),
                     operators::input<Op, &Inputs::bias>(call)},
          .gradients = {call.gradients[0], call.gradients[1], call.gradients[2], accumulate},
          .execution = {operators::blocks_as<BlockSizes>(call.block_sizes), call.workspace_bytes,
                        call.workspace, call.knobs, gradient_filter_eps, own.dz_dtype},
          .loss = r};
}

/// What dz_dtype may be.
template <class Op>
void check_dz_dtype(const arguments::Checks& checks, const operators::Call& call) {
  const auto dz_dtype = operators::execution_options_of<Op>(call).dz_dtype;
  if (!dz_dtype || *dz_dtype == DType::f32 || *dz_dtype == DType::bf16) return;
  checks.fail(std::string("dz_dtype is ") + to_string(*dz_dtype) +
              "; it is f32, or bf16, to which dz may be rounded where x and w are bf16 (the "
              "default)");
}

/// H.
inline std::int64_t hidden(const Request& request) { return request.inputs.x.extents().back(); }

}  // namespace tessera::linear
