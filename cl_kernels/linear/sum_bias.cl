// SPDX-License-Identifier: Apache-2.0
// grad_bias of a range of the vocabulary: dz summed over the rows of a chunk.
#include "common/row_pass.cl"
#include "engines/operand.cl"
#include "linear/arguments.h"

// The same from sums of LANES each, which the gradient made where it rounded dz (add_to_bias).
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

// sums[v] (+)= the sum of dz over the rows of a chunk: of each work-item's columns of a panel,
// panel by panel, and then of these in order. Work-item (of a panel's, group of v_block columns).
kernel void sum_bias(global const operand_word* dz, global float* sums, sum_bias_arguments a) {
  local float parts[PANEL_ITEMS];
  const int item = (int)get_local_id(0);
  const long v_begin = (long)get_global_id(1) * a.size.v_block;
  const long v_end = min(v_begin + a.size.v_block, a.size.v_count);
  for (long v = v_begin; v < v_end; ++v) {
    lane_f total = (lane_f)(0.0f);
    for (int panel = 0; panel < a.size.panels; ++panel) {
      for (int column = item * LANES; column < TILE_N; column += PANEL_ITEMS * LANES) {
        total += operand_load(dz + a.at.dz + operand_index(a.size.dz_columns, panel, v, column), v);
      }
    }
    parts[item] = lane_total(total);
    barrier(CLK_LOCAL_MEM_FENCE);  // every part is there before the first work-item reads them
    if (item == 0) {
      float sum = 0.0f;
      for (int part = 0; part < PANEL_ITEMS; ++part) sum += parts[part];
      global float* to = sums + a.at.sums + v;
      *to = a.size.first ? sum : *to + sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // and has read them before the next column's are written
  }
}
