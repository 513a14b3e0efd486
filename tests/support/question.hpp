// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

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
  const std::set<std::string_view> besides = {"statistics", "teacher_logits"};
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const auto& input = call.op->inputs[i];
    const bool given = input.reads == Reads::always || input.reads == Reads::by_backward;
    if (!reads_in(q.pass, input.reads) || !(given || besides.contains(input.name))) continue;
    const auto extents =
        input.shape.extents({q.b}, false, [&](char letter) { return letter == 'H' ? q.h : q.v; });
    const auto type = input.types == ElementTypes::integer ? DType::i32
                      : input.types == ElementTypes::f32   ? DType::f32
                                                           : q.type;
    call.inputs[i] =
        View::host(nullptr, type, extents, input.is_weight() && q.vh ? Dims{1, q.h} : Dims());
  }
  call.implementation = implementation;
  return call;
}

}  // namespace tessera::test
