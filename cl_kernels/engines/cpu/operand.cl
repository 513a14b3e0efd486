// SPDX-License-Identifier: Apache-2.0
// Operands of the cpu engine. With DOT_BF16 what is packed of x for
// products with w is pairs of bf16, a word of the bits of two, the
// second 0 where k is odd; with ALONG_K its k runs across lanes.
#ifndef TESSERA_CPU_OPERAND_CL
#define TESSERA_CPU_OPERAND_CL

#define PANEL_ITEMS 1  // one work-item takes a panel, vector by vector

#if DOT_BF16
#define WORDS(elements) (((elements) + 1) / 2)
#define ELEMENTS(words) (2 * (words))
#else
#define WORDS(elements) (elements)
#define ELEMENTS(words) (words)
#endif
// Words of k in a panel.
#if ALONG_K
#define OPERAND_EXTENT(k_count) WHOLE_VECTORS(k_count)
#else
#define OPERAND_EXTENT(k_count) WORDS(k_count)
#endif

#ifdef PACK_TYPE
#if DOT_BF16
#define WORD_ELEMENTS 2
#define WORD_VECTOR(p) AS_LANE_F(LANE_LOAD_PAIRS(p))
#define WORD_AT(p, k, k_count, stride) pair_at(p, k, k_count, stride)
static inline float pair_at(global const ushort* row, long k, long k_count, long stride) {
  uint pair = row[k * stride];
  if (k + 1 < k_count) pair |= (uint)row[(k + 1) * stride] << 16;
  return as_float(pair);
}
#elif ALONG_K
// [panel][k / LANES][TILE_N][LANES]
#define OPERAND_PACKS_ROWS 1
static inline void operand_pack_rows(global float* out, long k_count, long panel, int column,
                                     const long* start, global const ELEMENT(PACK_TYPE) * from,
                                     long k_stride, long k0, long k1) {
  for (int n = 0; n < LANES; ++n) {
    if (start[n] == ROW_ELSEWHERE) continue;
    global float* to = out + panel * WHOLE_VECTORS(k_count) * TILE_N + (column + n) * LANES;
    long k = k0;
#if LANES > 1 && PACK_CONTIGUOUS
    for (; start[n] >= 0 && k + LANES <= k1; k += LANES) {
      LANE_STORE(LANE_LOAD_TYPE(PACK_TYPE, from + start[n] + k), to + k * TILE_N);
    }
#endif
    for (; k < k1; ++k) {
      to[k / LANES * LANES * TILE_N + k % LANES] =
          start[n] < 0 ? 0.0f : LOAD(PACK_TYPE, from, start[n] + k * k_stride);
    }
  }
}
#endif
#endif

#include "engines/panels.cl"

#endif
