// SPDX-License-Identifier: Apache-2.0
// A step of operand A in local memory: as it lies in global memory, so that it comes by copies of
// 16 bytes, and is turned into what the instruction takes only on the way to registers. Three
// forms: rows along k; where its m are contiguous in memory, rows along m for each k (A_BY_M); and
// what an epilogue stored (A_OPERAND), whose words hold two m, in rows along k for each pair of m.
//
// Rows of C beyond the tile are nobody's, so that their A may be anything; what is beyond the
// tile's k is 0, whatever lies there in memory.
#ifndef TESSERA_MMA_OPERAND_A_CL
#define TESSERA_MMA_OPERAND_A_CL

// The spare words at the end of a row put what a warp reads together into different banks.
#define A_BY_M (A_LAYOUT == ALONG_FIRST && !A_OPERAND)
#if A_OPERAND
#define MMA_ROWS_A (TILE_M / 2)
#define MMA_WIDTH_A ELEMENTS(DEPTH)
#define MMA_LD_A (MMA_WIDTH_A + 8)
#elif A_BY_M
#define MMA_ROWS_A ELEMENTS(DEPTH)
#define MMA_WIDTH_A (TILE_M / 2)
#define MMA_LD_A (MMA_WIDTH_A + 4)
#else
#define MMA_ROWS_A TILE_M
#define MMA_WIDTH_A DEPTH
#define MMA_LD_A (MMA_WIDTH_A + 4)
#endif
#define MMA_WORDS_A (MMA_ROWS_A * MMA_LD_A)
#define MMA_QUADS_A (MMA_ROWS_A * MMA_WIDTH_A / 4 / MMA_ITEMS)

#if A_OPERAND
// All of a panel is there.
#define MMA_WHOLE_A 1
static inline void mma_bring_a(local uint* to, const matrix_a* matrix, const a_tile* now, int k0,
                               int item, int whole, int part) {
#pragma unroll
  for (int i = MMA_SHARE(MMA_QUADS_A, part); i < MMA_SHARE(MMA_QUADS_A, part + 1); ++i) {
    const int at = item + i * MMA_ITEMS;
    const int row = at / (MMA_WIDTH_A / 4), word = at % (MMA_WIDTH_A / 4) * 4;
    const int k = ELEMENTS((int)now->k + k0) + word;
    const int end = min(matrix->k_count, ELEMENTS((int)now->k + now->depth));
    const int count = 2 * row < now->rows ? clamp(end - k, 0, 4) : 0;
    mma_copy(to + row * MMA_LD_A + word,
             matrix->base + operand_index(matrix->extent, k / TILE_N, now->m + 2 * row, k % TILE_N),
             count);
  }
}
#else

// The bits of an element as bf16; an engine has this one for what is bf16, the rest is for programs
// that are built by themselves.
#if A_TYPE == TYPE_BF16
#define MMA_BITS(p, i) (uint)(p)[i]
// Whether 8 elements side by side begin where 16 bytes may be read, wherever a step has them.
#define MMA_WHOLE_A                                         \
  (A_LAYOUT != STRIDED && ((ulong)matrix.base & 15) == 0 && \
   (A_BY_M ? matrix.k_stride % 8 == 0 && now.m % 8 == 0 : matrix.m_stride % 8 == 0))
#else
#define MMA_BITS(p, i) (uint) float_to_bf16(LOAD(A_TYPE, p, i))
#define MMA_WHOLE_A 0
#endif

static inline void mma_bring_a(local uint* to, const matrix_a* matrix, const a_tile* now, int k0,
                               int item, int whole, int part) {
  const int end = min(matrix->k_count, ELEMENTS((int)now->k + now->depth));
#pragma unroll
  for (int i = MMA_SHARE(MMA_QUADS_A, part); i < MMA_SHARE(MMA_QUADS_A, part + 1); ++i) {
    const int at = item + i * MMA_ITEMS;
    const int row = at / (MMA_WIDTH_A / 4), word = at % (MMA_WIDTH_A / 4) * 4;
    local uint* here = to + row * MMA_LD_A + word;
    // The first of 8 elements along one of them.
    const int m = A_BY_M ? 2 * word : row;
    const int k = ELEMENTS((int)now->k + k0) + (A_BY_M ? row : 2 * word);
    const int m_left = now->rows - m, k_left = end - k;
    const int left = m_left <= 0 || k_left <= 0 ? 0 : min(A_BY_M ? m_left : k_left, 8);
    global const ELEMENT(A_TYPE)* from =
        matrix->base + (now->m + m) * matrix->m_stride + k * matrix->k_stride;
    if (whole && (left == 8 || left == 0)) {
      mma_copy(here, (global const operand_word*)from, left / 2);
      continue;
    }
    const long stride = A_BY_M ? matrix->m_stride : matrix->k_stride;
    for (int j = 0; j < 4; ++j) {
      const uint low = 2 * j < left ? MMA_BITS(from, 2 * j * stride) : 0;
      here[j] = low | (2 * j + 1 < left ? MMA_BITS(from, (2 * j + 1) * stride) << 16 : 0);
    }
  }
}
#endif

// One 16 x 16 block for the instruction, from row m and element 16 * k of a step, m beyond that of
// this work-item's warp.
#if MMA == 1
#if A_OPERAND
// Two words of one pair of rows, of which a row has one half each.
#define MMA_BLOCK_A(a, step, m, k, lane)                                        \
  {                                                                             \
    local const uint* at_ =                                                     \
        (step) + ((m) / 2 + (lane) / 8) * MMA_LD_A + 16 * (k) + (lane) % 4 * 2; \
    const uint half_ = (lane) / 4 % 2 ? 0x7632u : 0x5410u;                      \
    MMA_HALVES(a[0], at_, half_)                                                \
    MMA_HALVES(a[1], at_ + 4 * MMA_LD_A, half_)                                 \
    MMA_HALVES(a[2], at_ + 8, half_)                                            \
    MMA_HALVES(a[3], at_ + 4 * MMA_LD_A + 8, half_)                             \
  }
#define MMA_HALVES(to, at, half)                                                              \
  {                                                                                           \
    const uint2 words_ = *(local const uint2*)(at);                                           \
    __asm__("prmt.b32 %0, %1, %2, %3;" : "=r"(to) : "r"(words_.x), "r"(words_.y), "r"(half)); \
  }
#else
#if A_BY_M
#define MMA_BLOCK_A(a, step, m, k, lane)                                             \
  MMA_LOAD(a, ".trans",                                                              \
           (step) + (16 * (k) + (lane) / 16 * 8 + (lane) % 8) * MMA_LD_A + (m) / 2 + \
               (lane) / 8 % 2 * 4)
#else
#define MMA_BLOCK_A(a, step, m, k, lane) \
  MMA_LOAD(a, "", (step) + ((m) + (lane) % 16) * MMA_LD_A + 8 * (k) + (lane) / 16 * 4)
#endif
#define MMA_LOAD(a, turned, at)                                                                 \
  __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4" turned ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                   : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])                             \
                   : "l"(at)                                                                    \
                   : "memory");
#endif
#else
// The bits of one element.
static inline uint mma_element_a(local const uint* step, int m, int k) {
#if A_OPERAND
  const uint word = step[m / 2 * MMA_LD_A + k];
  return m % 2 ? word >> 16 : word & 0xffffu;
#elif A_BY_M
  const uint word = step[k * MMA_LD_A + m / 2];
  return m % 2 ? word >> 16 : word & 0xffffu;
#else
  const uint word = step[m * MMA_LD_A + k / 2];
  return k % 2 ? word >> 16 : word & 0xffffu;
#endif
}
#endif

#endif
