// SPDX-License-Identifier: Apache-2.0
// Operand A of the cpu engine as it lies in memory, for the packing and the inner loops:
//
//   product_a_at(a, tile, m, k)  one element (a word, where pairs are multiplied); m < tile->rows
//                         and k < tile->depth always hold
//   PRODUCT_A_ALONG_K     1: product_a_copy_k(a, tile, m, k, to) copies PRODUCT_A_COPIED of them:
//                         k, k+1, ...
//   PRODUCT_A_ALONG_M     1: product_a_copy_m(a, tile, m, k, to) copies PRODUCT_M_LANES of them: m,
//                         m+1, ...; all m below product_a_readable(a, tile) may be loaded, also
//                         beyond tile->rows
//   PRODUCT_A_IN_PLACE    1: product_a_element(a, tile, m, 0) is row m, contiguous along k, in what
//                         the inner loop multiplies
//   product_a_element(a, tile, m, k)  points to an element in the caller's matrix, k in elements
//   product_a_half(a, tile)  1: the last pair of the tile's rows is half

#if PRODUCT_DOT_BF16
ALWAYS_INLINE int product_a_half(const product_a* a, const a_tile* tile) {
  return 2 * (tile->k + tile->depth) > a->k_count;
}
#else
ALWAYS_INLINE int product_a_half(const product_a* a, const a_tile* tile) { return 0; }
#endif
// Words of a tile that are whole.
ALWAYS_INLINE int product_a_whole(const product_a* a, const a_tile* tile) {
  return tile->depth - product_a_half(a, tile);
}

#if PRODUCT_A_STORED
#define PRODUCT_A_ALONG_K 1
// TILE_N elements of k side by side, then the next panel: rows of such an operand are contiguous
// along k in pieces of whole vectors.
ALWAYS_INLINE long product_a_index(const product_a* a, const a_tile* tile, int m, int k) {
  return ((long)(k / TILE_N) * a->extent + STORED_ROW(tile->m + m)) * TILE_N + k % TILE_N;
}
#if PRODUCT_DOT_BF16
// Elements are halves of words, which two rows share; two neighbours along k make a word.
#define PRODUCT_A_COPIED (LANES / 2)
ALWAYS_INLINE int product_a_at(const product_a* a, const a_tile* tile, int m, int k) {
  global const uint* words = (global const uint*)a->base + product_a_index(a, tile, m, 2 * k);
  const int shift = (int)(tile->m + m) & 1 ? 16 : 0;
  const uint first = words[0] >> shift & 0xffffu;
  const uint second = 2 * k + 1 < a->k_count ? words[1] >> shift & 0xffffu : 0;
  return (int)(first | second << 16);
}
ALWAYS_INLINE void product_a_copy_k(const product_a* a, const a_tile* tile, int m, int k,
                                    global int* to) {
  const lane_i both = LANE_LOAD((global const int*)(a->base + product_a_index(a, tile, m, 2 * k)));
  const int is_high = (int)(tile->m + m) & 1;
  LANE_STORE(LANE_CAT(convert_ushort)(is_high ? both >> 16 & 0xffff : both & 0xffff),
             (global ushort*)to);
}
#else
#define PRODUCT_A_COPIED LANES
ALWAYS_INLINE float product_a_at(const product_a* a, const a_tile* tile, int m, int k) {
  return ((global const float*)a->base)[product_a_index(a, tile, m, k)];
}
ALWAYS_INLINE void product_a_copy_k(const product_a* a, const a_tile* tile, int m, int k,
                                    global float* to) {
  LANE_STORE(LANE_LOAD((global const float*)a->base + product_a_index(a, tile, m, k)), to);
}
#endif
#else

ALWAYS_INLINE global const ELEMENT(PRODUCT_A_TYPE) *
    product_a_element(const product_a* a, const a_tile* tile, int m, int k) {
  return a->base + (product_elements(tile->k) + k) * a->k_stride + (tile->m + m) * a->m_stride;
}
ALWAYS_INLINE int product_a_readable(const product_a* a, const a_tile* tile) {
  return (int)(a->m_readable - tile->m);
}
#if PRODUCT_DOT_BF16
// The word's second element may be beyond the end.
ALWAYS_INLINE int product_a_has_high(const product_a* a, const a_tile* tile, int k) {
  return 2 * (tile->k + k) + 1 < a->k_count;
}
ALWAYS_INLINE int product_a_at(const product_a* a, const a_tile* tile, int m, int k) {
  global const ushort* low = product_a_element(a, tile, m, 2 * k);
  const uint high = product_a_has_high(a, tile, k) ? low[a->k_stride] : 0;
  return (int)(*low | high << 16);
}
#else
ALWAYS_INLINE float product_a_at(const product_a* a, const a_tile* tile, int m, int k) {
  return LOAD(PRODUCT_A_TYPE, product_a_element(a, tile, m, k), 0);
}
#endif

#if PRODUCT_A_LAYOUT == ALONG_SECOND
#define PRODUCT_A_ALONG_K 1
#define PRODUCT_A_COPIED LANES
// LANES words of a row.
ALWAYS_INLINE product_lanes product_a_vector(global const ELEMENT(PRODUCT_A_TYPE) * row) {
#if PRODUCT_DOT_BF16
  return LANE_LOAD_PAIRS(row);
#else
  return LANE_LOAD_TYPE(PRODUCT_A_TYPE, row);
#endif
}
ALWAYS_INLINE void product_a_copy_k(const product_a* a, const a_tile* tile, int m, int k,
                                    global product_word* to) {
  LANE_STORE(product_a_vector(product_a_element(a, tile, m, PRODUCT_WORD_ELEMENTS * k)), to);
}
#if PRODUCT_A_TYPE == TYPE_F32 || PRODUCT_DOT_BF16
#define PRODUCT_A_IN_PLACE 1
#endif
#elif PRODUCT_A_LAYOUT == ALONG_FIRST
#define PRODUCT_A_ALONG_M 1
// A strip has MICRO_M of them, so that of a vector of 16 most would be overwritten at once.
#if LANES == 16
#define PRODUCT_M_LANES 8
typedef float8 product_m_floats;
typedef int8 product_m_ints;
#else
#define PRODUCT_M_LANES LANES
typedef lane_f product_m_floats;
typedef lane_i product_m_ints;
#endif
#if PRODUCT_DOT_BF16
ALWAYS_INLINE product_m_ints product_a_halves(global const ushort* p) {
#if LANES == 16
  return convert_int8(vload8(0, p));
#else
  return LANE_CAT(convert_int)(LANE_LOAD(p));
#endif
}
#else
ALWAYS_INLINE product_m_floats product_a_floats(global const ELEMENT(PRODUCT_A_TYPE) * p) {
#if LANES != 16
  return LANE_LOAD_TYPE(PRODUCT_A_TYPE, p);
#elif PRODUCT_A_TYPE == TYPE_F32
  return vload8(0, p);
#elif PRODUCT_A_TYPE == TYPE_BF16
  return as_float8(convert_uint8(vload8(0, p)) << 16);
#else
  return vload_half8(0, p);
#endif
}
#endif
ALWAYS_INLINE void product_a_copy_m(const product_a* a, const a_tile* tile, int m, int k,
                                    global product_word* to) {
#if PRODUCT_DOT_BF16
  product_m_ints value = product_a_halves(product_a_element(a, tile, m, 2 * k));
  if (product_a_has_high(a, tile, k)) {
    value |= product_a_halves(product_a_element(a, tile, m, 2 * k + 1)) << 16;
  }
#else
  const product_m_floats value = product_a_floats(product_a_element(a, tile, m, k));
#endif
#if LANES == 16
  vstore8(value, 0, to);
#else
  LANE_STORE(value, to);
#endif
}
#endif
#endif

#ifndef PRODUCT_A_ALONG_K
#define PRODUCT_A_ALONG_K 0
#endif
#ifndef PRODUCT_A_ALONG_M
#define PRODUCT_A_ALONG_M 0
#endif
#ifndef PRODUCT_A_IN_PLACE
#define PRODUCT_A_IN_PLACE 0
#endif
