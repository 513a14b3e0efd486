// SPDX-License-Identifier: Apache-2.0
// Operands of the cpu engine. With DOT_BF16 what is packed is pairs of
// bf16, a word of the bits of two along k, the second 0 where k is odd;
// with ALONG_K its k runs across lanes.
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
#define OPERAND_EXTENT(k_count) WHOLE_VECTORS(WORDS(k_count))
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
#define OPERAND_PACKS_COLUMNS 1
static inline void operand_pack_columns(global operand_word* out, long row_count, long row,
                                        const long* start, global const ushort* from, long k_stride,
                                        long k_count, long panel0, long panel1) {
  if (start[0] == ROW_ELSEWHERE && start[1] == ROW_ELSEWHERE) return;
  for (long panel = panel0; panel < panel1; ++panel) {
    const long k0 = panel * TILE_N;
    global float* to = (global float*)out + (panel * WORDS(row_count) + row / 2) * TILE_N;
    const int valid = k_count - k0 < TILE_N ? (int)(k_count - k0) : TILE_N;
    int n = 0;
#if LANES > 1 && PACK_CONTIGUOUS
    for (; start[0] >= 0 && start[1] != ROW_ELSEWHERE && n + LANES <= valid; n += LANES) {
      global const ushort* low = from + start[0] + k0 + n;
      global const ushort* high = start[1] < 0 ? low : from + start[1] + k0 + n;
      LANE_STORE(AS_LANE_F(lane_join_pairs(low, high, start[1] >= 0)), to + n);
    }
#endif
    // Each half by itself: the other may be another launch's.
    for (; n < TILE_N; ++n) {
      for (int which = 0; which < 2; ++which) {
        if (start[which] == ROW_ELSEWHERE) continue;
        ((global ushort*)to)[2 * n + which] =
            n < valid && start[which] >= 0 ? from[start[which] + (k0 + n) * k_stride] : 0;
      }
    }
  }
}
#else
#define WORD_ELEMENTS 1
#define WORD_VECTOR(p) LANE_LOAD_TYPE(PACK_TYPE, p)
#define WORD_AT(p, k, k_count, stride) LOAD(PACK_TYPE, p, (k) * (stride))
#endif
#if ALONG_K
// [panel][word / LANES][ALONG_K][LANES]; a panel has room for TILE_N tokens.
#define OPERAND_PACKS_ROWS 1
static inline void operand_pack_rows(global operand_word* out, long k_count, long panel, int column,
                                     const long* start, global const ELEMENT(PACK_TYPE) * from,
                                     long k_stride, long k0, long k1) {
  for (int n = 0; n < LANES; ++n) {
    if (start[n] == ROW_ELSEWHERE || column + n >= ALONG_K) continue;
    global float* to =
        (global float*)out + panel * OPERAND_EXTENT(k_count) * TILE_N + (column + n) * LANES;
    long k = k0;
#if LANES > 1 && PACK_CONTIGUOUS
    for (; start[n] >= 0 && k + LANES * WORD_ELEMENTS <= k1; k += LANES * WORD_ELEMENTS) {
      LANE_STORE(WORD_VECTOR(from + start[n] + k), to + k / WORD_ELEMENTS * ALONG_K);
    }
#endif
    for (; k < k1; k += WORD_ELEMENTS) {
      const long word = k / WORD_ELEMENTS;
      to[word / LANES * LANES * ALONG_K + word % LANES] =
          start[n] < 0 ? 0.0f : WORD_AT(from + start[n], k, k_count, k_stride);
    }
  }
}
#endif
#endif

#include "engines/panels.cl"

#endif
