// SPDX-License-Identifier: Apache-2.0
// A step of operand A in local memory: as it lies in global memory, so that it comes by copies of
// 16 bytes, and is turned into the form of the instruction only on the way to registers.
//
// Rows of C beyond the tile are discarded, so their A may be anything; beyond the tile's k it is 0,
// whatever lies there in memory.

#define PRODUCT_QUADS_A (PRODUCT_ROWS_A * PRODUCT_WIDTH_A / 4 / PRODUCT_ITEMS)
#define PRODUCT_DOWN_A (PRODUCT_ITEMS / (PRODUCT_WIDTH_A / 4))
#if PRODUCT_ITEMS % (PRODUCT_WIDTH_A / 4) != 0
#error "a row of operand A is not a part of what a work-group brings in at once"
#endif

#if PRODUCT_A_STORED
// All of a panel is there.
ALWAYS_INLINE int product_a_is_whole(const product_a* a, const a_tile* now) { return 1; }
ALWAYS_INLINE void product_bring_a(local uint* to, const product_a* a, const a_tile* now, int k0,
                                   int item, int whole, int part) {
  const int row = item / (PRODUCT_WIDTH_A / 4), word = item % (PRODUCT_WIDTH_A / 4) * 4;
  local uint* here = to + row * PRODUCT_LD_A + word;
  const int k = 2 * ((int)now->k + k0) + word;
  const int count = clamp(min(a->k_count, 2 * ((int)now->k + now->depth)) - k, 0, 4);
  global const operand_word* from =
      a->base + operand_index(a->extent, k / TILE_N, now->m + 2 * row, k % TILE_N);
#pragma unroll
  for (int i = product_share(PRODUCT_QUADS_A, part); i < product_share(PRODUCT_QUADS_A, part + 1);
       ++i) {
    const int down = i * PRODUCT_DOWN_A;
    product_copy(here + down * PRODUCT_LD_A, from + STORED_ROW(2 * down) * TILE_N,
                 2 * (row + down) < now->rows ? count : 0);
  }
}
#else

// The bits of an element in a pair; an engine has this one for the type of pairs, the rest is for
// programs that are built by themselves.
ALWAYS_INLINE uint product_bits(global const ELEMENT(PRODUCT_A_TYPE) * p, long i) {
#if PRODUCT_A_TYPE == PAIR_TYPE
  return ((global const ushort*)p)[i];
#else
  return float_to_pair(LOAD(PRODUCT_A_TYPE, p, i));
#endif
}
// 1: 8 elements side by side begin where 16 bytes may be read, wherever a step has them.
ALWAYS_INLINE int product_a_is_whole(const product_a* a, const a_tile* now) {
#if PRODUCT_A_TYPE != PAIR_TYPE || PRODUCT_A_LAYOUT == STRIDED
  return 0;
#elif PRODUCT_A_BY_M
  return ((ulong)a->base & 15) == 0 && a->k_stride % 8 == 0 && now->m % 8 == 0;
#else
  return ((ulong)a->base & 15) == 0 && a->m_stride % 8 == 0;
#endif
}

ALWAYS_INLINE void product_bring_a(local uint* to, const product_a* a, const a_tile* now, int k0,
                                   int item, int whole, int part) {
  const int row = item / (PRODUCT_WIDTH_A / 4), word = item % (PRODUCT_WIDTH_A / 4) * 4;
  // The first of 8 elements along one of them, k from that of the tile on.
  const int m = PRODUCT_A_BY_M ? 2 * word : row;
  const int k = 2 * k0 + (PRODUCT_A_BY_M ? row : 2 * word);
  const int m_left = now->rows - m;
  const int k_left = min(a->k_count - 2 * (int)now->k, 2 * now->depth) - k;
  local uint* to_first = to + row * PRODUCT_LD_A + word;
  global const ELEMENT(PRODUCT_A_TYPE)* first =
      a->base + (now->m + m) * a->m_stride + (2 * (int)now->k + k) * a->k_stride;
#pragma unroll
  for (int i = product_share(PRODUCT_QUADS_A, part); i < product_share(PRODUCT_QUADS_A, part + 1);
       ++i) {
    const int down = i * PRODUCT_DOWN_A;
    local uint* here = to_first + down * PRODUCT_LD_A;
#if PRODUCT_A_BY_M
    global const ELEMENT(PRODUCT_A_TYPE)* from = first + down * a->k_stride;
    const int left = m_left <= 0 || k_left <= down ? 0 : min(m_left, 8);
#else
    global const ELEMENT(PRODUCT_A_TYPE)* from = first + down * a->m_stride;
    const int left = m_left <= down || k_left <= 0 ? 0 : min(k_left, 8);
#endif
    if (whole && (left == 8 || left == 0)) {
      product_copy(here, (global const operand_word*)from, left / 2);
      continue;
    }
    const long stride = PRODUCT_A_BY_M ? a->m_stride : a->k_stride;
    for (int j = 0; j < 4; ++j, from += 2 * stride) {
      const uint low = 2 * j < left ? product_bits(from, 0) : 0;
      here[j] = low | (2 * j + 1 < left ? product_bits(from, stride) << 16 : 0);
    }
  }
}
#endif

#if MMA == 1
#if PRODUCT_A_STORED
// Two words of one pair of rows, of which a row has one half each.
ALWAYS_INLINE uint product_halves(local const uint* at, uint which) {
  const uint2 words = *(local const uint2*)at;
  uint both;
  __asm__("prmt.b32 %0, %1, %2, %3;" : "=r"(both) : "r"(words.x), "r"(words.y), "r"(which));
  return both;
}
#else
#if PRODUCT_A_BY_M
#define PRODUCT_TRANS ".trans"
#else
#define PRODUCT_TRANS ""
#endif
#endif
// The address at which this work-item reads the 16 x 16 block from row m, the first of its warp,
// and element 16 * k of a step; the block of the next 16 rows is PRODUCT_NEXT_A words further.
// Lanes of 8 each read a quarter of it, 8 x 8: the second one is below the first or, where C is
// turned, beside it.
#if PRODUCT_A_STORED
#define PRODUCT_NEXT_A (8 * PRODUCT_LD_A)
#elif PRODUCT_A_BY_M
#define PRODUCT_NEXT_A 8
#else
#define PRODUCT_NEXT_A (16 * PRODUCT_LD_A)
#endif
ALWAYS_INLINE local const uint* product_blocks_a(local const uint* step, int m, int k, int lane) {
  const int below = PRODUCT_TURNED ? lane / 16 : lane / 8 % 2;
  const int beside = PRODUCT_TURNED ? lane / 8 % 2 : lane / 16;
#if PRODUCT_A_STORED
  return step + (m / 2 + lane / 8) * PRODUCT_LD_A + 16 * k + lane % 4 * 2;
#elif PRODUCT_A_BY_M
  return step + (16 * k + beside * 8 + lane % 8) * PRODUCT_LD_A + m / 2 + below * 4;
#else
  return step + (m + below * 8 + lane % 8) * PRODUCT_LD_A + 8 * k + beside * 4;
#endif
}
// One block for the instruction.
ALWAYS_INLINE void product_block_a(uint* a, local const uint* at, int lane) {
#if PRODUCT_A_STORED
  const uint which = lane / 4 % 2 ? 0x7632u : 0x5410u;
  a[0] = product_halves(at, which);
  a[PRODUCT_TURNED ? 2 : 1] = product_halves(at + 4 * PRODUCT_LD_A, which);
  a[PRODUCT_TURNED ? 1 : 2] = product_halves(at + 8, which);
  a[3] = product_halves(at + 4 * PRODUCT_LD_A + 8, which);
#else
  __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4" PRODUCT_TRANS
                   ".shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                   : "l"(at)
                   : "memory");
#endif
}
#else
// The bits of one element.
static inline uint product_element_a(local const uint* step, int m, int k) {
#if PRODUCT_A_STORED
  const uint word = step[m / 2 * PRODUCT_LD_A + k];
  return m % 2 ? word >> 16 : word & 0xffffu;
#elif PRODUCT_A_BY_M
  const uint word = step[k * PRODUCT_LD_A + m / 2];
  return m % 2 ? word >> 16 : word & 0xffffu;
#else
  const uint word = step[m * PRODUCT_LD_A + k / 2];
  return k % 2 ? word >> 16 : word & 0xffffu;
#endif
}
#endif
