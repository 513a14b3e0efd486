// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "host/loss/operator.hpp"
#include "tessera/linear_cross_entropy.hpp"

/// What the operators share whose logits are a product, x [B, H] w [H, V]: schedules and launches
/// on OpenCL (opencl/), and the walk of the host (walk.hpp). What becomes of logits is the
/// operator's own.
namespace tessera::linear {

using linear_cross_entropy::Accumulate;
using linear_cross_entropy::BlockSizes;

/// This half of an operator's call, which it refers to and which outlives it.
struct Request {
  const char* operator_name;  ///< whose measured block sizes are looked up
  struct {
    const View &x, &w, &bias;
  } inputs;
  struct {
    const MutableView &grad_x, &grad_w, &grad_bias;
    Accumulate accumulate;
  } gradients;
  struct {
    const std::optional<BlockSizes>& block_sizes;
    const std::optional<std::size_t>& workspace_bytes;
    std::span<const NamedValue> knobs;
    float gradient_filter_eps;  ///< 0 where the operator filters nothing
    std::optional<DType> dz_dtype;
  } execution;
  const loss::LossRequest& loss;
};

template <class Op>
Request request_of(const loss::OperatorRequest<Op>& r) {
  float gradient_filter_eps = 0.0f;
  if constexpr (requires { r.execution.gradient_filter_eps; }) {
    gradient_filter_eps = r.execution.gradient_filter_eps;
  }
  const auto& g = r.gradients;
  return {.operator_name = OperatorTraits<Op>::name,
          .inputs = {r.inputs.x, r.inputs.w, r.inputs.bias},
          .gradients = {g.grad_x, g.grad_w, g.grad_bias, g.accumulate},
          .execution = {r.execution.block_sizes, r.execution.workspace_bytes, r.execution.knobs,
                        gradient_filter_eps, r.execution.dz_dtype},
          .loss = r.loss};
}

/// What dz_dtype may be.
inline void check_dz_dtype(const arguments::Checks& checks, const std::optional<DType>& dz_dtype) {
  if (!dz_dtype || *dz_dtype == DType::f32 || *dz_dtype == DType::bf16) return;
  checks.fail(std::string("dz_dtype is ") + to_string(*dz_dtype) +
              "; it is f32, or bf16, to which dz may be rounded where x and w are bf16 (the "
              "default)");
}

/// H.
inline std::int64_t hidden(const Request& request) { return request.inputs.x.extents().back(); }

}  // namespace tessera::linear
