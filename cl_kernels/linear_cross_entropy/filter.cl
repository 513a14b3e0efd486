// SPDX-License-Identifier: Apache-2.0
// Gradient filtering, for a chunk of rows and a range of the vocabulary: which tiles of dz, FILTER
// columns of the vocabulary by TILE_N tokens, matter to grad_x and grad_w (kept.cl).
#include "common/info.cl"
#include "common/lanes.cl"

// kept[panel][tile of the range] = 1 where an element is above `eps` times its row's coefficient, or is
// not a number. Work-item (lanes of a panel, tile); a group has one tile.
kernel void mark(global const float* dz, long dz_offset, long dz_columns, int panels, long v_count,
                 global const float* coefficients, long coefficients_offset, int ld, float eps,
                 global int* kept, long kept_offset, int kept_tiles) {
#if LANES == 1
  local int found;
#endif
  const int tile = (int)get_global_id(1);
  const long v_begin = (long)tile * FILTER;
  const int rows = v_count - v_begin < FILTER ? (int)(v_count - v_begin) : FILTER;
  const int step = (int)get_global_size(0) * LANES;
  global const float* factors = coefficients + coefficients_offset + ROW_P * ld;
  for (int panel = 0; panel < panels; ++panel) {
    global const float* from = dz + dz_offset + ((long)panel * dz_columns + v_begin) * TILE_N;
    int above = 0;
    for (int column = (int)get_global_id(0) * LANES; column < TILE_N; column += step) {
      lane_f limit = (lane_f)(eps) * fabs(LANE_LOAD(factors + panel * TILE_N + column));
      // No limit, however large its row's coefficient, is one that an infinity does not exceed.
      limit = limit > (lane_f)(FLT_MAX) ? (lane_f)(FLT_MAX) : limit;
      lane_f over = (lane_f)(0.0f);
      for (int v = 0; v < rows; ++v) {
        // A NaN, of dz or of the limit, compares false and counts.
        const lane_f size = fabs(LANE_LOAD(from + v * TILE_N + column));
        over = size <= limit ? over : (lane_f)(1.0f);
      }
      float each[LANES];
      LANE_STORE(over, each);
      for (int n = 0; n < LANES; ++n) above |= each[n] != 0.0f;
    }
#if LANES == 1
    if (get_local_id(0) == 0) found = 0;
    barrier(CLK_LOCAL_MEM_FENCE);  // cleared before anybody finds something
    if (above) atomic_or(&found, 1);
    barrier(CLK_LOCAL_MEM_FENCE);  // complete before it is read
    above = found;
    barrier(CLK_LOCAL_MEM_FENCE);  // read before it is cleared for the next panel
#endif
    if (get_local_id(0) == 0) kept[kept_offset + (long)panel * kept_tiles + tile] = above;
  }
}
