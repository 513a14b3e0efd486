// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "host/operators/call.hpp"

namespace tessera::test {

/// What is asked of the planner: a call by extents and types.
struct Question {
  Pass pass;
  DType type;
  bool vh;
  std::int64_t b, h, v;
  const char* operation = "linear_cross_entropy";
};

/// Places of an operator's inputs by their names.
inline std::size_t place_of(const operators::Description& op, const char* name) {
  return static_cast<std::size_t>(op.input(name) - op.inputs.data());
}

/// A call by extents and types alone.
inline operators::Call call_of(const Question& q, const std::string& implementation) {
  operators::Call call(operators::description(q.operation), q.pass);
  for (const char* name : {"x", "logits", "w", "labels", "dy", "statistics", "teacher_logits"}) {
    const auto* input = call.op->input(name);
    if (input == nullptr || !reads_in(q.pass, input->reads)) continue;
    const auto extents =
        input->shape.extents({q.b}, false, [&](char letter) { return letter == 'H' ? q.h : q.v; });
    const auto type = input->types == ElementTypes::integer ? DType::i32
                      : input->types == ElementTypes::f32   ? DType::f32
                                                            : q.type;
    call.inputs[place_of(*call.op, name)] =
        View::host(nullptr, type, extents, input->is_weight() && q.vh ? Dims{1, q.h} : Dims());
  }
  call.implementation = implementation;
  return call;
}

}  // namespace tessera::test
