// SPDX-License-Identifier: Apache-2.0
// Operand A of the cpu engine as it lies in memory, for the packing and the inner loops:
//
//   A_AT(tile, m, k)      one element (a word, where pairs are multiplied); m < tile.rows and
//                         k < tile.depth always hold
//   A_CONTIGUOUS_K        1: A_COPY_K(tile, m, k, to) copies A_COPIED of them: k, k+1, ...
//   A_CONTIGUOUS_M        1: A_COPY_M(tile, m, k, to) copies A_M_LANES of them: m, m+1, ...; all m
//                         below A_ROWS_READABLE(tile) may be loaded, also beyond tile.rows
//   A_IN_PLACE            1: A_POINTER(tile, m) is row m, contiguous along k, in what the inner
//                         loop multiplies; rows are A_ROW_STEP elements apart
//   A_ADDRESSES           1: A_ADDRESS(tile, m, k) points to the element of A_AT, of A_TYPE; k in
//                         elements
//   A_HALF(tile)          with DOT_BF16: 1 if the last pair of the tile's rows is half
#ifndef TESSERA_CPU_OPERAND_A_CL
#define TESSERA_CPU_OPERAND_A_CL

#if DOT_BF16
#define A_HALF(tile) (2 * (tile.k + tile.depth) > matrix.k_count)
#endif

#if A_OPERAND
// TILE_N elements of k side by side, then the next panel: rows of such an operand are contiguous
// along k in pieces of whole vectors.
#define A_INDEX(tile, m_, k_) \
  (((long)((k_) / TILE_N) * matrix.extent + STORED_ROW(tile.m + (m_))) * TILE_N + (k_) % TILE_N)
#define A_CONTIGUOUS_K 1
#if DOT_BF16
// Elements are halves of words, which two rows share; two neighbours along k make a word.
#define A_ROW_HALF(tile, m_) ((int)(tile.m + (m_)) & 1)
#define A_AT(tile, m_, k_)                                                      \
  pair_of_halves((global const uint*)matrix.base + A_INDEX(tile, m_, 2 * (k_)), \
                 A_ROW_HALF(tile, m_), 2 * (k_) + 1 < matrix.k_count)
#define A_COPIED (LANES / 2)
#define A_COPY_K(tile, m_, k_, to) \
  copy_halves(matrix.base + A_INDEX(tile, m_, 2 * (k_)), A_ROW_HALF(tile, m_), (global ushort*)(to))
static inline int pair_of_halves(global const uint* words, int is_high, int has_second) {
  const uint first = words[0] >> (is_high ? 16 : 0) & 0xffffu;
  const uint second = has_second ? words[1] >> (is_high ? 16 : 0) : 0;
  return (int)(first | second << 16);
}
static inline void copy_halves(global const operand_word* from, int is_high, global ushort* to) {
  const lane_i both = LANE_LOAD((global const int*)from);
  LANE_STORE(LANE_CAT(convert_ushort)(is_high ? both >> 16 & 0xffff : both & 0xffff), to);
}
#else
#define A_AT(tile, m_, k_) ((global const float*)matrix.base)[A_INDEX(tile, m_, k_)]
#define A_VECTOR_K(tile, m_, k_) LANE_LOAD((global const float*)matrix.base + A_INDEX(tile, m_, k_))
#endif
#else

#define A_ADDRESSES (A_LAYOUT != STRIDED)
#define A_ADDRESS(tile, m_, k_) \
  (matrix.base + (ELEMENTS(tile.k) + (k_)) * matrix.k_stride + (tile.m + (m_)) * matrix.m_stride)
#define A_ROWS_READABLE(tile) (int)(matrix.m_readable - tile.m)
#if DOT_BF16
#define A_AT(tile, m_, k_) \
  pair_of(A_ADDRESS(tile, m_, 2 * (k_)), matrix.k_stride, 2 * (tile.k + (k_)) + 1 < matrix.k_count)
// Two elements of a row, of which the second may be beyond the end.
static inline int pair_of(global const ushort* low, long k_stride, int has_high) {
  const uint high = has_high ? low[k_stride] : 0;
  return (int)(*low | high << 16);
}
#else
#define A_AT(tile, m_, k_) LOAD(A_TYPE, A_ADDRESS(tile, m_, k_), 0)
#endif

#if A_LAYOUT == ALONG_SECOND
#define A_CONTIGUOUS_K 1
#if DOT_BF16
#define A_VECTOR_K(tile, m_, k_) LANE_LOAD_PAIRS(A_ADDRESS(tile, m_, 2 * (k_)))
#else
#define A_VECTOR_K(tile, m_, k_) LANE_LOAD_TYPE(A_TYPE, A_ADDRESS(tile, m_, k_))
#endif
#if A_TYPE == TYPE_F32 || DOT_BF16
#define A_IN_PLACE 1
#define A_POINTER(tile, m_) A_ADDRESS(tile, m_, 0)
#define A_ROW_STEP matrix.m_stride
#endif
#elif A_LAYOUT == ALONG_FIRST
#define A_CONTIGUOUS_M 1
// A strip has MICRO_M of them, so that of a vector of 16 most would be overwritten at once.
#if LANES == 16
#define A_M_LANES 8
#define A_M_LOAD_0(p) vload8(0, p)
#define A_M_LOAD_1(p) as_float8(convert_uint8(vload8(0, p)) << 16)
#define A_M_LOAD_2(p) vload_half8(0, p)
#define A_M_LOAD(p) TESSERA_CAT(A_M_LOAD_, A_TYPE)(p)
#define A_M_STORE(v, p) vstore8(v, 0, p)
#define A_M_PAIRS(p) convert_int8(vload8(0, p))
#else
#define A_M_LANES LANES
#define A_M_LOAD(p) LANE_LOAD_TYPE(A_TYPE, p)
#define A_M_STORE(v, p) LANE_STORE(v, p)
#define A_M_PAIRS(p) LANE_CAT(convert_int)(LANE_LOAD(p))
#endif
#if DOT_BF16
#define A_M_JOIN(low, high, has_high) \
  ((has_high) ? A_M_PAIRS(low) | A_M_PAIRS(high) << 16 : A_M_PAIRS(low))
#define A_COPY_M(tile, m_, k_, to)                                                     \
  A_M_STORE(A_M_JOIN(A_ADDRESS(tile, m_, 2 * (k_)), A_ADDRESS(tile, m_, 2 * (k_) + 1), \
                     2 * (tile.k + (k_)) + 1 < matrix.k_count),                        \
            to);
#else
#define A_COPY_M(tile, m_, k_, to) A_M_STORE(A_M_LOAD(A_ADDRESS(tile, m_, k_)), to);
#endif
#endif
#endif

#ifndef A_COPY_K
#define A_COPIED LANES
#define A_COPY_K(tile, m_, k_, to) LANE_STORE(A_VECTOR_K(tile, m_, k_), to)
#endif

#endif
