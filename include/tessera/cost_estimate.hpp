// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tessera {

/// What a call costs by its shapes, types and blocks alone; nothing is run.
struct CostEstimate {
  std::int64_t flops = 0;            ///< credited: 2BHV forward, 6BHV with both gradients
  std::int64_t transcendentals = 0;  ///< exp, log and tanh evaluations
  std::int64_t bytes_ideal = 0;      ///< each input and output once
  std::int64_t bytes_moved = 0;      ///< what the chosen blocking really moves, past caches
  std::int64_t executed_flops = 0;   ///< with what the schedule repeats
};

}  // namespace tessera
