// SPDX-License-Identifier: Apache-2.0
// Operands of the cpu engine. With PACK_DOT_BF16 pairs of bf16 are packed; with PACK_ALONG_K their
// k runs across lanes.
#ifndef TESSERA_CPU_OPERAND_CL
#define TESSERA_CPU_OPERAND_CL

#define PANEL_ITEMS 1  // one work-item takes a panel, vector by vector

// A tile of C lies in scratch of the work-group, [m][TILE_N].
typedef struct {
  global float* at;
} engine_tile;

#if PACK_DOT_BF16
#include "engines/pairs.cl"
#endif

#ifdef PACK_TYPE
#if !PACK_DOT_BF16
#define WORD_ELEMENTS 1
#define WORD_VECTOR(p) LANE_LOAD_TYPE(PACK_TYPE, p)
#define WORD_AT(p, k, k_count, stride) LOAD(PACK_TYPE, p, (k) * (stride))
#endif
#if PACK_ALONG_K
// [panel][word / LANES][PACK_ALONG_K][LANES]; a panel has room for TILE_N tokens.
#define OPERAND_PACKS_ROWS 1
static inline void operand_pack_rows(global operand_word* out, long k_count, long panel, int column,
                                     const pack_memory* memory,
                                     global const ELEMENT(PACK_TYPE) * from, long k_stride, long k0,
                                     long k1) {
  const long* start = memory->start;
  const long extent = WHOLE_VECTORS((k_count + WORD_ELEMENTS - 1) / WORD_ELEMENTS);
  for (int n = 0; n < LANES; ++n) {
    if (start[n] == ROW_ELSEWHERE || column + n >= PACK_ALONG_K) continue;
    global float* to = (global float*)out + panel * extent * TILE_N + (column + n) * LANES;
    long k = k0;
#if LANES > 1 && PACK_CONTIGUOUS
    for (; start[n] >= 0 && k + LANES * WORD_ELEMENTS <= k1; k += LANES * WORD_ELEMENTS) {
      LANE_STORE(WORD_VECTOR(from + start[n] + k), to + k / WORD_ELEMENTS * PACK_ALONG_K);
    }
#endif
    for (; k < k1; k += WORD_ELEMENTS) {
      const long word = k / WORD_ELEMENTS;
      to[word / LANES * LANES * PACK_ALONG_K + word % LANES] =
          start[n] < 0 ? 0.0f : WORD_AT(from + start[n], k, k_count, k_stride);
    }
  }
}
#endif
#endif

#include "engines/panels.cl"

#endif
