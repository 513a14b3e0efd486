// SPDX-License-Identifier: Apache-2.0
// A fused SwiGLU, y = silu(gate) * up, with its backward pass and a fallback for machines without a
// device.
#pragma once

#include <cmath>
#include <stdexcept>

#include "tessera/custom_kernel.hpp"

namespace custom_kernels {

inline const char* const swiglu_source = R"(
float sigmoid(float v) { return 1.0f / (1.0f + exp(-v)); }

kernel void swiglu(global const float* gate, global const float* up, global float* y) {
  const size_t i = get_global_id(0);
  y[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

kernel void swiglu_backward(global const float* gate, global const float* up,
                            global const float* dy, global float* grad_gate,
                            global float* grad_up) {
  const size_t i = get_global_id(0);
  const float s = sigmoid(gate[i]);
  grad_gate[i] = dy[i] * up[i] * s * (1.0f + gate[i] * (1.0f - s));
  grad_up[i] = dy[i] * gate[i] * s;
})";

inline tessera::CustomKernel swiglu() {
  using tessera::TensorSpec;
  const auto backward = tessera::custom_kernel({.source = swiglu_source,
                                                .entry = "swiglu_backward",
                                                .inputs = {"gate", "up", "dy"},
                                                .outputs = {"grad_gate", "grad_up"},
                                                .shape = [](const auto& in) {
                                                  return std::vector<TensorSpec>{in[0], in[1]};
                                                }});
  return tessera::custom_kernel(
      {.source = swiglu_source,
       .entry = "swiglu",
       .inputs = {"gate", "up"},
       .outputs = {"y"},
       .shape =
           [](const auto& in) {
             if (!(in[0] == in[1])) throw std::invalid_argument("gate and up have to be alike");
             return std::vector<TensorSpec>{in[0]};
           },
       .host =
           [](const auto& in, const auto& call) {
             std::vector<tessera::HostTensor> results;
             results.emplace_back(call.outputs[0].dtype(), call.outputs[0].extents());
             const auto* gate = static_cast<const float*>(in[0].host_data());
             const auto* up = static_cast<const float*>(in[1].host_data());
             for (std::size_t i = 0; auto& y : results[0].template as<float>()) {
               y = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
               ++i;
             }
             return results;
           },
       .backward = backward});
}

}  // namespace custom_kernels
