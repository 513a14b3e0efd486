// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "host/operators/bind.hpp"
#include "host/rms_norm/traits.hpp"

namespace tessera::rms_norm {

/// A validated call by the names of the operator's structs. It refers to the call, which outlives
/// it.
struct Request {
  const View &x, &scale, &dy;
  const MutableView &y, &grad_x, &grad_scale;
  bool accumulate;
  float epsilon, offset;
  std::int64_t b, h;
  const operators::Request& base;

  bool is_backward() const noexcept { return base.call.pass == Pass::backward; }
};

inline Request request_of(const dispatch::Request& request) {
  using operators::input;
  const auto& base = static_cast<const operators::Request&>(request);
  const auto& call = base.call;
  const View& x = input<Operator, &Inputs::x>(call);
  const Options options = operators::options_of<Operator>(call);
  return {.x = x,
          .scale = input<Operator, &Inputs::scale>(call),
          .dy = input<Operator, &Inputs::dy>(call),
          .y = call.outputs[0],
          .grad_x = call.gradients[0],
          .grad_scale = call.gradients[1],
          .accumulate = call.accumulate[0],
          .epsilon = options.epsilon,
          .offset = options.offset,
          .b = x.extents().first(x.rank() - 1).product(),
          .h = x.extents().back(),
          .base = base};
}

/// Calls `use` with a null pointer to the C++ type of a floating view's elements.
template <class Use>
void with_type(DType type, const Use& use) {
  if (type == DType::f32) return use(static_cast<float*>(nullptr));
  if (type == DType::bf16) return use(static_cast<bf16*>(nullptr));
  use(static_cast<f16*>(nullptr));
}

/// The blocks decide who reads a row, not how often it is read.
CostEstimate cost(const Request& request);

// Each implementation's file defines one of these rows.
std::unique_ptr<dispatch::Implementation> eigen_implementation();      ///< eigen.cpp
std::unique_ptr<dispatch::Implementation> reference_implementation();  ///< reference.cpp
std::unique_ptr<dispatch::Implementation> tile_implementation();       ///< tile.cpp
dispatch::Table opencl_implementations();                              ///< opencl.cpp

}  // namespace tessera::rms_norm
