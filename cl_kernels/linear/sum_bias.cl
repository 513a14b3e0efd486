// SPDX-License-Identifier: Apache-2.0
// grad_bias of a range of the vocabulary: dz summed over the rows of a chunk.
#include "engines/operand.cl"
#include "linear/arguments.h"

// The same from sums of LANES each, which the gradient made where it rounded dz (ADD_TO_BIAS).
// Work-item (v).
kernel void sum_bias_lanes(global const float* bias_lanes, global float* sums,
                           sum_bias_lanes_arguments a) {
  const long v = get_global_id(0);
  if (v >= a.size.v_count) return;
  float total = 0.0f;
  for (int lane = 0; lane < LANES; ++lane) total += bias_lanes[a.at.bias_lanes + v * LANES + lane];
  global float* to = sums + a.at.sums + v;
  *to = a.size.first ? total : *to + total;
}

// sums[v] (+)= the sum of dz over the rows of a chunk, panel by panel and lane by lane in order.
// Work-item (v).
kernel void sum_bias(global const operand_word* dz, global float* sums, sum_bias_arguments a) {
  const long v = get_global_id(0);
  if (v >= a.size.v_count) return;
  float total = 0.0f;
  for (int panel = 0; panel < a.size.panels; ++panel) {
    float part = 0.0f;
    for (int column = 0; column < TILE_N; ++column) {
      part += operand_element(dz + a.at.dz + operand_index(a.size.dz_columns, panel, v, column), v);
    }
    total += part;
  }
  global float* to = sums + a.at.sums + v;
  *to = a.size.first ? total : *to + total;
}
