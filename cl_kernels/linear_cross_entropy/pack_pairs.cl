// SPDX-License-Identifier: Apache-2.0
// Rows of x in bf16, by pairs, for engines that multiply them so: word k holds the elements 2k and
// 2k + 1, the second 0 where H is odd. Included by pack_x.cl.
#if X_TYPE != TYPE_BF16 || H_STEP % 2 != 0
#error "pairs are of bf16, and a pair is packed by one work-item"
#endif

// [panel of TILE_N rows][pair of h][TILE_N]. Work-item (h / H_STEP, panel).
kernel void pack_rows(X_ARGUMENTS, global float* out, long out_offset, long h_count) {
  const long h0 = (long)get_global_id(0) * H_STEP;
  const long h1 = h0 + H_STEP < h_count ? h0 + H_STEP : h_count;
  const long panel = get_global_id(1);
  global int* to = (global int*)(out + out_offset) + panel * ((h_count + 1) / 2) * TILE_N;
  for (int n0 = 0; n0 < TILE_N; n0 += LANES) {
    long start[LANES];
    int whole = 0;
    for (int n = 0; n < LANES; ++n) {
      start[n] = ROW_START(chunk_begin + panel * TILE_N + n0 + n);
      whole += start[n] >= 0;
    }
    long h = h0;
#if X_CONTIGUOUS
    // Blocks of LANES x LANES pairs, turned over in registers.
    for (; whole == LANES && h + 2 * LANES <= h1; h += 2 * LANES) {
      lane_f block[LANES];
#pragma unroll
      for (int n = 0; n < LANES; ++n) block[n] = AS_LANE_F(LANE_LOAD_PAIRS(x + start[n] + h));
      lane_transpose(block);
#pragma unroll
      for (int i = 0; i < LANES; ++i) {
        LANE_STORE(AS_LANE_I(block[i]), to + (h / 2 + i) * TILE_N + n0);
      }
    }
#endif
    for (int n = 0; n < LANES; ++n) {
      if (start[n] == ROW_ELSEWHERE) continue;
      for (long k = h; k < h1; k += 2) {
        uint pair = 0;
        if (start[n] != ROW_PADDING) {
          pair = x[start[n] + k * x_h_stride];
          if (k + 1 < h_count) pair |= (uint)x[start[n] + (k + 1) * x_h_stride] << 16;
        }
        to[k / 2 * TILE_N + n0 + n] = (int)pair;
      }
    }
  }
}
