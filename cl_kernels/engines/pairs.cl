// SPDX-License-Identifier: Apache-2.0
// Words of pairs (PAIR_TYPE), for engines that multiply those: a word of the bits of two along k,
// the second 0 where k is odd. Included before engines/panels.cl.
#ifndef TESSERA_PAIRS_CL
#define TESSERA_PAIRS_CL

#ifdef PACK_TYPE
#define WORD_ELEMENTS 2
#define WORD_VECTOR(p) AS_LANE_F(LANE_LOAD_PAIRS(p))
#define WORD_AT(p, k, k_count, stride) pair_at(p, k, k_count, stride)
// An engine has pairs of what is of their type; the rest is for programs that are built by
// themselves.
static inline ushort bits_at(global const ELEMENT(PACK_TYPE) * p, long i) {
#if PACK_TYPE == PAIR_TYPE
  return ((global const ushort*)p)[i];
#else
  return float_to_pair(LOAD(PACK_TYPE, p, i));
#endif
}
static inline float pair_at(global const ELEMENT(PACK_TYPE) * row, long k, long k_count,
                            long stride) {
  uint pair = bits_at(row, k * stride);
  if (k + 1 < k_count) pair |= (uint)bits_at(row, (k + 1) * stride) << 16;
  return as_float(pair);
}
#ifndef OPERAND_PACKS_COLUMNS
#define OPERAND_PACKS_COLUMNS 1
static inline void operand_pack_columns(global operand_word* out, long row_count, long row,
                                        const long* start, global const ELEMENT(PACK_TYPE) * from,
                                        long k_stride, long k_count, long panel0, long panel1) {
  if (start[0] == ROW_ELSEWHERE && start[1] == ROW_ELSEWHERE) return;
  for (long panel = panel0; panel < panel1; ++panel) {
    const long k0 = panel * TILE_N;
    global float* to = (global float*)out + (panel * ((row_count + 1) / 2) + row / 2) * TILE_N;
    const int valid = k_count - k0 < TILE_N ? (int)(k_count - k0) : TILE_N;
    int n = 0;
#if LANES > 1 && PACK_CONTIGUOUS && PACK_TYPE == TYPE_BF16
    for (; start[0] >= 0 && start[1] != ROW_ELSEWHERE && n + LANES <= valid; n += LANES) {
      global const ushort* low = from + start[0] + k0 + n;
      global const ushort* high = start[1] < 0 ? low : from + start[1] + k0 + n;
      LANE_STORE(AS_LANE_F(lane_join_pairs(low, high, start[1] >= 0)), to + n);
    }
#endif
    // Each half by itself: the other may be another launch's.
    for (n += PACK_ITEM; n < TILE_N; n += PACK_ITEMS) {
      for (int which = 0; which < 2; ++which) {
        if (start[which] == ROW_ELSEWHERE) continue;
        ((global ushort*)to)[2 * n + which] =
            n < valid && start[which] >= 0 ? bits_at(from, start[which] + (k0 + n) * k_stride) : 0;
      }
    }
  }
}
#endif
#endif

#endif
