// SPDX-License-Identifier: Apache-2.0
// The main loop of the mma engine, and where its results are. STAGES steps are in local memory: one
// is multiplied while the others come.
#ifndef TESSERA_MMA_PRODUCT_CL
#define TESSERA_MMA_PRODUCT_CL

// mma_copy brings `count` words of 4, and 0 for the rest, to local memory, where all work-items
// find them after MMA_ARRIVED(n) and a barrier: all but the last n of what was brought between two
// MMA_SENT. Nothing is read where count is 0.
#if MMA == 1
static inline void mma_copy(local uint* to, global const operand_word* from, int count) {
  __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                   :
                   : "l"(to), "l"(from), "r"(4 * count)
                   : "memory");
}
#define MMA_SENT __asm__ volatile("cp.async.commit_group;" : : : "memory");
#define MMA_ARRIVED(n) __asm__ volatile("cp.async.wait_group %0;" : : "n"(n) : "memory");
#else
static inline void mma_copy(local uint* to, global const operand_word* from, int count) {
  for (int i = 0; i < 4; ++i) to[i] = i < count ? from[i].bits : 0;
}
#define MMA_SENT
#define MMA_ARRIVED(n)
#endif

// A step is multiplied in blocks of 8 words, and a work-item brings its share of another in as many
// parts, so that neither waits for the other.
#define MMA_PARTS (DEPTH / 8)
#define MMA_SHARE(all, part) ((all) * (part) / MMA_PARTS)

#include "engines/mma/operand_a.cl"

// A step of operand B: rows of words for each pair of k, which is how the instruction takes it.
#define MMA_LD_B (TILE_N + 8)
#define MMA_WORDS_B (DEPTH * MMA_LD_B)
#define MMA_QUADS_B (TILE_N * DEPTH / 4 / MMA_ITEMS)
#define MMA_STAGE (MMA_WORDS_A + MMA_WORDS_B)
#if B_STORED
#define MMA_STEP_B STORED_ROW(2)
#else
#define MMA_STEP_B 1
#endif
static inline void mma_bring_b(local uint* to, const matrix_b* b, long panel, long k, int depth,
                               int item, int part) {
  global const operand_word* from = b->base + (panel * b->extent + k * MMA_STEP_B) * TILE_N;
#pragma unroll
  for (int i = MMA_SHARE(MMA_QUADS_B, part); i < MMA_SHARE(MMA_QUADS_B, part + 1); ++i) {
    const int at = item + i * MMA_ITEMS;
    const int row = at / (TILE_N / 4), n = at % (TILE_N / 4) * 4;
    mma_copy(to + row * MMA_LD_B + n, from + (row * MMA_STEP_B) * TILE_N + n, row < depth ? 4 : 0);
  }
}

// The result r of a work-item: 2 columns from MMA_COLUMN(r) on of row MMA_ROW(r), as the
// instruction spreads them over a warp.
#define MMA_RESULTS (2 * MMA_M * MMA_N)
#define MMA_ROW(r) \
  (warp_ / WARPS_N * (16 * MMA_M) + (r) / (2 * MMA_N) * 16 + (r) % 2 * 8 + lane_ / 4)
#define MMA_COLUMN(r) (warp_ % WARPS_N * (8 * MMA_N) + (r) / 2 % MMA_N * 8 + lane_ % 4 * 2)
#define MMA_FOR_RESULTS(m, n, value)                                                           \
  _Pragma("unroll") for (int r_ = 0; r_ < MMA_RESULTS;                                         \
                         ++r_) for (int m = MMA_ROW(r_), n = MMA_COLUMN(r_), once_ = 1; once_; \
                                    once_ = 0) for (const float2 value = sums_[r_]; once_;     \
                                                    once_ = 0)

#if MMA == 1
// sums += a * b of one 16 x 8 result over 16 elements of k.
#define MMA_INSTRUCTION(low, high, a, b)                                                   \
  __asm__ volatile(                                                                        \
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, " \
      "{%8,%9}, {%0,%1,%2,%3};"                                                            \
      : "+f"(low.x), "+f"(low.y), "+f"(high.x), "+f"(high.y)                               \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
// What a warp takes of a block of both operands.
typedef struct {
  uint a[MMA_M][4], b[MMA_N][2];
} mma_block;
static inline void mma_take(mma_block* block, local const uint* step, int k, int warp, int lane) {
  local const uint* b_at =
      step + MMA_WORDS_A + (8 * k + lane % 4) * MMA_LD_B + warp % WARPS_N * (8 * MMA_N) + lane / 4;
#pragma unroll
  for (int m = 0; m < MMA_M; ++m) {
    MMA_BLOCK_A(block->a[m], step, warp / WARPS_N * (16 * MMA_M) + 16 * m, k, lane)
  }
#pragma unroll
  for (int n = 0; n < MMA_N; ++n) {
    block->b[n][0] = b_at[8 * n];
    block->b[n][1] = b_at[4 * MMA_LD_B + 8 * n];
  }
}
static inline void mma_multiply(float2* sums, const mma_block* block) {
#pragma unroll
  for (int m = 0; m < MMA_M; ++m) {
#pragma unroll
    for (int n = 0; n < MMA_N; ++n) {
      MMA_INSTRUCTION(sums[2 * (m * MMA_N + n)], sums[2 * (m * MMA_N + n) + 1], block->a[m],
                      block->b[n])
    }
  }
}
#else
typedef struct {
  local const uint* step;
  int k, warp, lane;
} mma_block;
static inline void mma_take(mma_block* block, local const uint* step, int k, int warp, int lane) {
  block->step = step;
  block->k = k;
  block->warp = warp;
  block->lane = lane;
}
static inline void mma_multiply(float2* sums, const mma_block* block) {
  const int warp_ = block->warp, lane_ = block->lane;
  for (int r = 0; r < MMA_RESULTS; ++r) {
    float2 sum = sums[r];
    for (int k = 16 * block->k; k < 16 * (block->k + 1); ++k) {
      const float a = as_float(mma_element_a(block->step, MMA_ROW(r), k) << 16);
      const uint2 b = vload2(0, block->step + MMA_WORDS_A + k / 2 * MMA_LD_B + MMA_COLUMN(r));
      sum = fma((float2)(a), as_float2(k % 2 ? b & (uint2)(0xffff0000u) : b << 16), sum);
    }
    sums[r] = sum;
  }
}
#endif

// The same for every work-item of the group; K_KEPT_STEP is a multiple of DEPTH.
#ifdef K_KEPT
#define MMA_SKIP(k) \
  while (k < now.depth && !(K_KEPT(k / K_KEPT_STEP * K_KEPT_STEP))) k += DEPTH;
#else
#define MMA_SKIP(k)
#endif

#define MMA_STEP_AT(stage) ((local uint*)mma_shared + (stage)*MMA_STAGE)
// Brings a part of the step `coming_` into a stage, if there is one; after the last part it is the
// turn of the step after it.
#define MMA_BRING(b, panel, stage, part)                                         \
  if (coming_ < now.depth) {                                                     \
    mma_bring_a(MMA_STEP_AT(stage), &matrix, &now, coming_, item, whole_, part); \
    mma_bring_b(MMA_STEP_AT(stage) + MMA_WORDS_A, &(b), panel, now.k + coming_,  \
                now.depth - coming_, item, part);                                \
  }
#define MMA_BROUGHT \
  coming_ += DEPTH; \
  MMA_SKIP(coming_) \
  MMA_SENT

// Nobody stored the other half of the last word of an odd k, and 0 times a NaN is one.
#if B_STORED
#define MMA_CLEAR_HALF(stage)                                               \
  const int odd_ = matrix.k_count - 1 - ELEMENTS((int)now.k + k_);          \
  if (matrix.k_count % 2 == 1 && odd_ < ELEMENTS(DEPTH)) {                  \
    for (int n = item; n < TILE_N; n += MMA_ITEMS) {                        \
      MMA_STEP_AT(stage)[MMA_WORDS_A + odd_ / 2 * MMA_LD_B + n] &= 0xffffu; \
    }                                                                       \
    barrier(CLK_LOCAL_MEM_FENCE); /* before it is multiplied */             \
  }
#else
#define MMA_CLEAR_HALF(stage)
#endif

// sums_ = A * b over all of the tile's depth; every work-item of the group takes part.
#define MMA_PRODUCT(b, panel)                                                                     \
  const int item = (int)get_local_id(0);                                                          \
  const int warp_ = item / 32, lane_ = item % 32;                                                 \
  const int whole_ = MMA_WHOLE_A;                                                                 \
  float2 sums_[MMA_RESULTS];                                                                      \
  _Pragma("unroll") for (int r = 0; r < MMA_RESULTS; ++r) sums_[r] = (float2)(0.0f);              \
  int k_ = 0, coming_, stage_ = 0;                                                                \
  MMA_SKIP(k_)                                                                                    \
  coming_ = k_;                                                                                   \
  /* The steps, and the tile in their place, are free to be overwritten. */                       \
  barrier(CLK_LOCAL_MEM_FENCE);                                                                   \
  for (int stage = 0; stage < STAGES - 1; ++stage) {                                              \
    _Pragma("unroll") for (int part = 0; part < MMA_PARTS; ++part)                                \
        MMA_BRING(b, panel, stage, part) MMA_BROUGHT                                              \
  }                                                                                               \
  while (k_ < now.depth) {                                                                        \
    MMA_ARRIVED(STAGES - 2)                                                                       \
    /* This step is complete, and all have read the one before it, whose place the next takes. */ \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                 \
    MMA_CLEAR_HALF(stage_)                                                                        \
    const int free_ = stage_ == 0 ? STAGES - 1 : stage_ - 1;                                      \
    _Pragma("unroll") for (int part = 0; part < MMA_PARTS; ++part) {                              \
      mma_block block;                                                                            \
      mma_take(&block, MMA_STEP_AT(stage_), part, warp_, lane_);                                  \
      MMA_BRING(b, panel, free_, part)                                                            \
      mma_multiply(sums_, &block);                                                                \
    }                                                                                             \
    MMA_BROUGHT                                                                                   \
    stage_ = stage_ + 1 == STAGES ? 0 : stage_ + 1;                                               \
    k_ += DEPTH;                                                                                  \
    MMA_SKIP(k_)                                                                                  \
  }                                                                                               \
  MMA_ARRIVED(0) /* what was brought last is none */

#endif
