// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/tile/machine.hpp"

// The schedules of the kernels whose times are published (Tokamax's fused loss on a TPU7x, x in
// f32, w in bf16): grid, blocks and copies as there, the work of each step charged to the units and
// not done. For calibration of the time model alone.
namespace tessera::bench {

struct LossProblem {
  std::int64_t b = 0, h = 0, v = 0;
  std::int64_t b_block = 0, h_block = 0, v_block = 0;
};

/// Loss and log-sum-exp: grid (b, v, h), logits of a block summed over h in VMEM.
void schedule_forward(tile::Machine& machine, const LossProblem& problem);
/// Gradients of x and w, in f32, added to in HBM: grid (b, v, 2, h).
void schedule_backward(tile::Machine& machine, const LossProblem& problem);

}  // namespace tessera::bench
