// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "host/opencl/call.hpp"
#include "host/softmax_cross_entropy/opencl_plan.hpp"

namespace tessera::softmax_cross_entropy {

/// What a request compiles: one specialisation per kernel file.
struct Programs {
  opencl::Specialisation forward, gradient, fused;
  std::array<opencl::Specialisation*, 3> all() { return {&forward, &gradient, &fused}; }
};

/// Enqueues a call, everything in order: statistics and values of each chunk of rows, then its
/// gradient. `programs`: of this request and engine.
void enqueue(opencl::Call& call, const Request& request, const engines::Engine& engine,
             const Schedule& schedule, const Programs& programs);

}  // namespace tessera::softmax_cross_entropy
