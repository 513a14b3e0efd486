// SPDX-License-Identifier: Apache-2.0
// Gradient filtering, for a chunk of rows and a range of the vocabulary: which tiles of dz, FILTER
// columns of the vocabulary by TILE_N tokens, matter to grad_x and grad_w (filtered.cl).
#include "common/info.cl"
#include "engines/operand.cl"
#include "linear/arguments.h"

#ifndef FILTER
#define FILTER 64
#endif

// counts[panel][tile of the range] = 1 where an element is above `eps` times its row's coefficient,
// or is not a number. Work-item (of a panel's, tile); a group has one tile.
kernel void mark(global const operand_word* dz, global const float* coefficients,
                 global int* counts, mark_arguments a) {
#if PANEL_ITEMS > 1
  local int found;
#endif
  const int tile = (int)get_global_id(1);
  const long v_begin = (long)tile * FILTER;
  const int rows = a.size.v_count - v_begin < FILTER ? (int)(a.size.v_count - v_begin) : FILTER;
  const int step = (int)get_global_size(0) * LANES;
  global const float* factors = coefficients + a.at.coefficients + ROW_P * a.size.ld;
  for (int panel = 0; panel < a.size.panels; ++panel) {
    int above = 0;
    for (int column = (int)get_global_id(0) * LANES; column < TILE_N; column += step) {
      lane_f limit = (lane_f)(a.size.eps) * fabs(LANE_LOAD(factors + panel * TILE_N + column));
      // No limit, however large its row's coefficient, is one that an infinity does not exceed.
      limit = limit > (lane_f)(FLT_MAX) ? (lane_f)(FLT_MAX) : limit;
      lane_f over = (lane_f)(0.0f);
      for (int v = 0; v < rows; ++v) {
        // A NaN, of dz or of the limit, compares false and counts.
        const long k = v_begin + v;
        const lane_f stored =
            operand_load(dz + a.at.dz + operand_index(a.size.dz_columns, panel, k, column), k);
        // As large as it may have been before it was rounded.
        const lane_f size =
            fabs(stored) * (lane_f)(1.0f + OPERAND_ROUNDING) + (lane_f)(OPERAND_STEP);
        over = size <= limit ? over : (lane_f)(1.0f);
      }
      float each[LANES];
      LANE_STORE(over, each);
      for (int n = 0; n < LANES; ++n) above |= each[n] != 0.0f;
    }
#if PANEL_ITEMS > 1
    if (get_local_id(0) == 0) found = 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // cleared before anybody finds something
    if (above) atomic_or(&found, 1);
    barrier(CLK_LOCAL_MEM_FENCE);  // complete before it is read
    above = found;
    barrier(CLK_LOCAL_MEM_FENCE);  // read before it is cleared for the next panel
#endif
    if (get_local_id(0) == 0) counts[a.at.counts + (long)panel * a.size.tiles + tile] = above;
  }
}
