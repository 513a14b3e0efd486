// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "host/engines/engine.hpp"
#include "host/opencl/call.hpp"
#include "host/softmax_cross_entropy/request.hpp"

namespace tessera::softmax_cross_entropy {

/// How one call is cut into launches.
struct Schedule {
  std::string name{};  ///< "row_by_row" (fused) or "streamed"
  BlockSizes blocks{};
  BlockSource source = BlockSource::fallback;
  std::int64_t chunk_rows = 0;
  std::int64_t slices = 0;
  bool fused = false;  ///< value_and_grad: a work-item takes a row through both passes
  std::int64_t scratch_words = 0;
};

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
