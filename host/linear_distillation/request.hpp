// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "host/linear/request.hpp"
#include "host/linear_distillation/traits.hpp"

namespace tessera::linear_distillation {

/// A validated call by the names of the operator's structs: x [leading, H], w [H, V]; a teacher's
/// layer, or its logits [leading, V]. It refers to the call, which outlives it.
struct Request {
  struct {
    const View &x, &w, &bias, &teacher_x, &teacher_w, &teacher_bias, &teacher_logits;
    const View& divergence_statistics;
  } inputs;
  struct {
    const MutableView &divergence, &target_entropy, &divergence_statistics;
  } outputs;
  Options options;
  linear::Request student;  ///< the layer that learns
  const loss::LossRequest& loss;
};

inline Request request_of(const dispatch::Request& request) {
  using operators::input;
  const auto& loss = loss::loss_request(request);
  const auto& call = loss.call;
  const auto& outputs = call.outputs;
  constexpr std::size_t own = loss_output_count;
  return {
      .inputs = {input<Operator, &Inputs::x>(call), input<Operator, &Inputs::w>(call),
                 input<Operator, &Inputs::bias>(call), input<Operator, &Inputs::teacher_x>(call),
                 input<Operator, &Inputs::teacher_w>(call),
                 input<Operator, &Inputs::teacher_bias>(call),
                 input<Operator, &Inputs::teacher_logits>(call),
                 input<Operator, &Inputs::divergence_statistics>(call)},
      .outputs = {outputs[own], outputs[own + 1], outputs[own + 2]},
      .options = operators::options_of<Operator>(call),
      .student = linear::request_of<Operator>(loss),
      .loss = loss};
}

/// What schedules and launches know of it.
inline const linear::Request& layer_of(const Request& request) { return request.student; }

/// H, and the width of the teacher's layer, 0 where its logits are given.
inline std::int64_t hidden(const Request& request) { return request.inputs.x.extents().back(); }
inline std::int64_t teacher_hidden(const Request& request) {
  return request.inputs.teacher_logits ? 0 : request.inputs.teacher_x.extents().back();
}

/// Cost of a request; `formed`: how often each logit, of student and teacher, is formed.
CostEstimate cost(const Request& request, std::int64_t formed);

// Each implementation's file defines one of these rows.
std::unique_ptr<dispatch::Implementation> eigen_implementation();      ///< eigen.cpp
std::unique_ptr<dispatch::Implementation> reference_implementation();  ///< reference.cpp
dispatch::Table opencl_implementations();                              ///< opencl/steps.cpp

}  // namespace tessera::linear_distillation
