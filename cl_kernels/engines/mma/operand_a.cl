// SPDX-License-Identifier: Apache-2.0
// A step of operand A on its way to local memory: each work-item fetches MMA_DOUBLES_A times 8
// words (16 elements) into registers, and puts them down later as the main loop reads them. What is
// beyond the tile's rows or its k comes as 0; memory there may hold anything.
#ifndef TESSERA_MMA_OPERAND_A_CL
#define TESSERA_MMA_OPERAND_A_CL

#define MMA_DOUBLES_A (TILE_M * DEPTH / 8 / MMA_ITEMS)

#define MMA_LOW(a, b) (((a)&0xffffu) | ((b) << 16))
#define MMA_HIGH(a, b) (((a) >> 16) | ((b)&0xffff0000u))

#if A_OPERAND
// What an epilogue stored: m along its k, two of them in a word, and our k along its columns. 8
// words of one pair of rows are 4 words of each row.
#define MMA_WHOLE_A 1
static inline void mma_fetch_a(uint4* to, const matrix_a* matrix, const a_tile* now, int k0,
                               int item, int whole) {
#pragma unroll
  for (int i = 0; i < MMA_DOUBLES_A; ++i) {
    const int at = item + i * MMA_ITEMS;
    const int m = at / (DEPTH / 4) * 2;
    const long k = ELEMENTS(now->k + k0 + at % (DEPTH / 4) * 4);
    const long end = min((long)matrix->k_count, ELEMENTS(now->k + now->depth));
    const int left = m < now->rows ? (int)clamp(end - k, 0L, 8L) : 0;
    to[2 * i] = to[2 * i + 1] = (uint4)(0);
    if (left == 0) continue;
    // All of a panel is there.
    global const uint4* from =
        (global const uint4*)(matrix->base + operand_index(matrix->extent, k / TILE_N, now->m + m,
                                                           (int)(k % TILE_N)));
    to[2 * i] = from[0] & as_uint4((int4)(0, 1, 2, 3) < (int4)(left));
    to[2 * i + 1] = from[1] & as_uint4((int4)(4, 5, 6, 7) < (int4)(left));
  }
}
static inline void mma_put_a(const uint4* from, local uint* to, const a_tile* now, int item) {
#pragma unroll
  for (int i = 0; i < MMA_DOUBLES_A; ++i) {
    const int at = item + i * MMA_ITEMS;
    const int m = at / (DEPTH / 4) * 2;
    local uint4* row = (local uint4*)(to + MMA_A_AT(m, at % (DEPTH / 4) * 4));
    const uint4 a = from[2 * i], b = from[2 * i + 1];
    row[0] = (uint4)(MMA_LOW(a.x, a.y), MMA_LOW(a.z, a.w), MMA_LOW(b.x, b.y), MMA_LOW(b.z, b.w));
    // The second of the last pair may be nobody's.
    row[MMA_LD_A / 4] = m + 1 < now->rows ? (uint4)(MMA_HIGH(a.x, a.y), MMA_HIGH(a.z, a.w),
                                                    MMA_HIGH(b.x, b.y), MMA_HIGH(b.z, b.w))
                                          : (uint4)(0);
  }
}
#else

// The bits of an element as bf16; an engine has this one for what is bf16, the rest is for programs
// that are built by themselves.
#if A_TYPE == TYPE_BF16
#define MMA_BITS(p, i) (p)[i]
// Whether 8 elements that lie side by side may be read as one word of 16 bytes, wherever a step
// has them.
#define MMA_WHOLE_A                                                                        \
  (((ulong)matrix.base & 15) == 0 &&                                                       \
   (A_BY_WORDS ? matrix.k_stride % 8 == 0 && now.m % 8 == 0 : matrix.m_stride % 8 == 0) && \
   A_LAYOUT != STRIDED)
#else
#define MMA_BITS(p, i) float_to_bf16(LOAD(A_TYPE, p, i))
#define MMA_WHOLE_A 0
#endif

// The word of elements k and k + 1 of row m; `left`: how many of them there are.
static inline uint mma_word(const matrix_a* matrix, long m, long k, long left) {
  const long at = m * matrix->m_stride + k * matrix->k_stride;
  const uint low = left > 0 ? (uint)MMA_BITS(matrix->base, at) : 0;
  return low | (left > 1 ? (uint)MMA_BITS(matrix->base, at + matrix->k_stride) << 16 : 0);
}

#if A_BY_WORDS
// 8 rows of the elements k and k + 1.
static inline void mma_fetch_a(uint4* to, const matrix_a* matrix, const a_tile* now, int k0,
                               int item, int whole) {
#pragma unroll
  for (int i = 0; i < MMA_DOUBLES_A; ++i) {
    const int at = item + i * MMA_ITEMS;
    const int m = at % (TILE_M / 8) * 8;
    const long word = k0 + at / (TILE_M / 8);
    const long k = ELEMENTS(now->k + word);
    const long left = word < now->depth ? matrix->k_count - k : 0;
    if (whole && m + 8 <= now->rows) {
      global const uchar* from =
          (global const uchar*)(matrix->base + (now->m + m) + k * matrix->k_stride);
      const uint4 low = left > 0 ? *(global const uint4*)from : (uint4)(0);
      const uint4 high =
          left > 1 ? *(global const uint4*)(from + 2 * matrix->k_stride) : (uint4)(0);
      to[2 * i] = (uint4)(MMA_LOW(low.x, high.x), MMA_HIGH(low.x, high.x), MMA_LOW(low.y, high.y),
                          MMA_HIGH(low.y, high.y));
      to[2 * i + 1] = (uint4)(MMA_LOW(low.z, high.z), MMA_HIGH(low.z, high.z),
                              MMA_LOW(low.w, high.w), MMA_HIGH(low.w, high.w));
      continue;
    }
    uint words[8];
    for (int j = 0; j < 8; ++j) {
      words[j] = mma_word(matrix, now->m + m + j, k, m + j < now->rows ? left : 0);
    }
    to[2 * i] = vload4(0, words);
    to[2 * i + 1] = vload4(1, words);
  }
}
static inline void mma_put_a(const uint4* from, local uint* to, const a_tile* now, int item) {
#pragma unroll
  for (int i = 0; i < MMA_DOUBLES_A; ++i) {
    const int at = item + i * MMA_ITEMS;
    local uint4* row = (local uint4*)(to + MMA_A_AT(at % (TILE_M / 8) * 8, at / (TILE_M / 8)));
    row[0] = from[2 * i];
    row[1] = from[2 * i + 1];
  }
}
#else
// 4 words of a row at a time.
static inline void mma_fetch_a(uint4* to, const matrix_a* matrix, const a_tile* now, int k0,
                               int item, int whole) {
#pragma unroll
  for (int i = 0; i < 2 * MMA_DOUBLES_A; ++i) {
    const int at = item + i * MMA_ITEMS;
    const int m = at / (DEPTH / 4);
    const long word = k0 + at % (DEPTH / 4) * 4;
    const long k = ELEMENTS(now->k + word);
    const long in_step = ELEMENTS((long)now->depth - word);
    const long left = m < now->rows ? min(matrix->k_count - k, in_step) : 0;
    if (whole && left >= 8) {
      to[i] = *(global const uint4*)(matrix->base + (now->m + m) * matrix->m_stride + k);
      continue;
    }
    uint words[4];
    for (int j = 0; j < 4; ++j) words[j] = mma_word(matrix, now->m + m, k + 2 * j, left - 2 * j);
    to[i] = vload4(0, words);
  }
}
static inline void mma_put_a(const uint4* from, local uint* to, const a_tile* now, int item) {
#pragma unroll
  for (int i = 0; i < 2 * MMA_DOUBLES_A; ++i) {
    const int at = item + i * MMA_ITEMS;
    *(local uint4*)(to + MMA_A_AT(at / (DEPTH / 4), at % (DEPTH / 4) * 4)) = from[i];
  }
}
#endif
#endif

#endif
