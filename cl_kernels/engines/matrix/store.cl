// SPDX-License-Identifier: Apache-2.0
// A tile of C goes from registers to a matrix of the caller's. Lines of the tile are the
// instruction's rows, which lie along the matrix's contiguous index.
#include "engines/store.cl"  // as product

#if PRODUCT_TURNED
ALWAYS_INLINE long product_line_stride(const product_out* out) { return out->n_stride; }
ALWAYS_INLINE int product_first_line(const tile_place* at) { return at->warp_n; }
ALWAYS_INLINE int product_first_along(const tile_place* at) { return at->warp_m; }
#else
ALWAYS_INLINE long product_line_stride(const product_out* out) { return out->m_stride; }
ALWAYS_INLINE int product_first_line(const tile_place* at) { return at->warp_m; }
ALWAYS_INLINE int product_first_along(const tile_place* at) { return at->warp_n; }
#endif

#define PRODUCT_RUNS (MMA == 1 && PRODUCT_OUT_TYPE == PAIR_TYPE && PRODUCT_OUT_LAYOUT != STRIDED)
#if PRODUCT_RUNS
// 1: the tile has all of its elements, and runs of 8 begin where 16 bytes may be read and written.
ALWAYS_INLINE int product_has_runs(const product_state* p, int panel) {
  return p->now.rows == TILE_M && product_columns(p, panel) == TILE_N &&
         ((ulong)product_place(p, panel) & 15) == 0 && product_line_stride(&p->out) % 8 == 0;
}
ALWAYS_INLINE void product_store_runs(const product_state* p, const engine_tile* tile, int panel) {
  const tile_place* at = &p->memory.place;
  global ushort* to = (global ushort*)product_place(p, panel) +
                      product_first_line(at) * product_line_stride(&p->out) +
                      product_first_along(at) + at->lane % 4 * 8;
#pragma unroll
  for (int r = 0; r < LANE_DOWN * tile_down(PRODUCT_TURNED); ++r) {
    global ushort* line = to + tile_line(at, r) * product_line_stride(&p->out);
#pragma unroll
    for (int s = 0; s < tile_across(PRODUCT_TURNED); s += 4) {
      global uint4* run = (global uint4*)(line + 8 * s);
      uint words[4];
      if (p->out.how == STORE_ADD) {
        const uint4 there = *run;
        words[0] = there.x, words[1] = there.y, words[2] = there.z, words[3] = there.w;
        warp_turn(words, at->lane);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair =
            tile->sums[tile_result(PRODUCT_TURNED, r, LANE_ACROSS * (s + i))] + tile_element(r, 0);
        words[i] = p->out.how == STORE_ADD
                       ? tile_pair(pair[0] + pair_to_float((ushort)words[i]),
                                   pair[1] + pair_to_float((ushort)(words[i] >> 16)))
                       : tile_pair(pair[0], pair[1]);
      }
      warp_turn(words, at->lane);
      *run = (uint4)(words[0], words[1], words[2], words[3]);
    }
  }
}
#endif

ALWAYS_INLINE void product_store(product_state* p, const engine_tile* tile, int panel) {
#if PRODUCT_RUNS
  if (product_has_runs(p, panel)) {
    product_store_runs(p, tile, panel);
    return;
  }
#endif
  global ELEMENT(PRODUCT_OUT_TYPE)* to = product_place(p, panel);
  const int columns = product_columns(p, panel);
  PRODUCT_FOR_ELEMENTS(i, p->now.rows, j) {
    const int m = product_row(p, i), n = product_column(p, j);
    if (m >= p->now.rows || n >= columns) continue;
    const long at = m * p->out.m_stride + n * p->out.n_stride;
    const float value = product_at(tile, i, j);
    STORE(PRODUCT_OUT_TYPE, to, at,
          p->out.how == STORE_ADD ? LOAD(PRODUCT_OUT_TYPE, to, at) + value : value);
  }
}
