// SPDX-License-Identifier: Apache-2.0
// The main loop of the mma engine, and where its results are.
#ifndef TESSERA_MMA_PRODUCT_CL
#define TESSERA_MMA_PRODUCT_CL

#define MMA_QUADS_B (TILE_N * DEPTH / 4 / MMA_ITEMS)
// Words along k that one instruction takes of each row and column.
#define MMA_K 8

// Where words k .. k + DEPTH of a panel of operand B begin, and how far apart they are.
#if B_STORED
#define MMA_STEP_B STORED_ROW(2)
#else
#define MMA_STEP_B 1
#endif
static inline void mma_fetch_b(uint4* to, const matrix_b* b, long panel, long k, int depth,
                               long elements, int item) {
  global const uint* from =
      (global const uint*)b->base + (panel * b->extent + k * MMA_STEP_B) * TILE_N;
#pragma unroll
  for (int i = 0; i < MMA_QUADS_B; ++i) {
    const int at = item + i * MMA_ITEMS;
    const int word = at / (TILE_N / 4);
    const int n = at % (TILE_N / 4) * 4;
    uint4 words = (uint4)(0);
    if (word < depth) words = *(global const uint4*)(from + (long)word * MMA_STEP_B * TILE_N + n);
#if B_STORED
    // Nobody stored the other half of the last word.
    if (ELEMENTS(word) + 1 >= elements) words &= (uint4)(0xffffu);
#endif
    to[i] = words;
  }
}
static inline void mma_put_b(const uint4* from, local uint* to, int item) {
#pragma unroll
  for (int i = 0; i < MMA_QUADS_B; ++i) {
    const int at = item + i * MMA_ITEMS;
    *(local uint4*)(to + MMA_B_AT(at / (TILE_N / 4), at % (TILE_N / 4) * 4)) = from[i];
  }
}

// The result r of a work-item: 2 columns from MMA_COLUMN(r) on of row MMA_ROW(r), as the
// instruction spreads them over a warp.
#define MMA_RESULTS (2 * MMA_M * MMA_N)
#define MMA_ROW(r) \
  (warp_ / WARPS_N * (16 * MMA_M) + (r) / (2 * MMA_N) * 16 + (r) % 2 * 8 + lane_ / 4)
#define MMA_COLUMN(r) (warp_ % WARPS_N * (8 * MMA_N) + (r) / 2 % MMA_N * 8 + lane_ % 4 * 2)
#define MMA_FOR_RESULTS(m, n, value)                                                               \
  _Pragma("unroll") for (int r_ = 0; r_ < MMA_RESULTS; ++r_)                                       \
      _Pragma("unroll") for (int m = MMA_ROW(r_), n = MMA_COLUMN(r_), once_ = 1; once_; once_ = 0) \
          _Pragma("unroll") for (const float2 value = sums_[r_]; once_; once_ = 0)

#if MMA == 1
// sums += a * b of one 16 x 8 result over 16 elements of k.
#define MMA_INSTRUCTION(low, high, a, b)                                                   \
  __asm__ volatile(                                                                        \
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, " \
      "{%8,%9}, {%0,%1,%2,%3};"                                                            \
      : "+f"(low.x), "+f"(low.y), "+f"(high.x), "+f"(high.y)                               \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
static inline void mma_multiply(float2* sums, local const uint* a_step, local const uint* b_step,
                                int warp, int lane) {
  local const uint* a_at = a_step + MMA_A_AT(warp / WARPS_N * (16 * MMA_M) + lane / 4, lane % 4);
  local const uint* b_at = b_step + MMA_B_AT(lane % 4, warp % WARPS_N * (8 * MMA_N) + lane / 4);
#pragma unroll
  for (int k = 0; k < DEPTH; k += MMA_K) {
    uint b[MMA_N][2];
#pragma unroll
    for (int n = 0; n < MMA_N; ++n) {
      b[n][0] = b_at[MMA_B_AT(k, 8 * n)];
      b[n][1] = b_at[MMA_B_AT(k + 4, 8 * n)];
    }
#pragma unroll
    for (int m = 0; m < MMA_M; ++m) {
      uint a[4];
      a[0] = a_at[MMA_A_AT(16 * m, k)];
      a[1] = a_at[MMA_A_AT(16 * m + 8, k)];
      a[2] = a_at[MMA_A_AT(16 * m, k + 4)];
      a[3] = a_at[MMA_A_AT(16 * m + 8, k + 4)];
#pragma unroll
      for (int n = 0; n < MMA_N; ++n) {
        MMA_INSTRUCTION(sums[2 * (m * MMA_N + n)], sums[2 * (m * MMA_N + n) + 1], a, b[n])
      }
    }
  }
}
#else
static inline float mma_pair(float sum, uint a, uint b) {
  sum = fma(as_float(a << 16), as_float(b << 16), sum);
  return fma(as_float(a & 0xffff0000u), as_float(b & 0xffff0000u), sum);
}
static inline void mma_multiply(float2* sums, local const uint* a_step, local const uint* b_step,
                                int warp_, int lane_) {
  for (int r = 0; r < MMA_RESULTS; ++r) {
    float2 sum = sums[r];
    for (int k = 0; k < DEPTH; ++k) {
      const uint a = a_step[MMA_A_AT(MMA_ROW(r), k)];
      sum.x = mma_pair(sum.x, a, b_step[MMA_B_AT(k, MMA_COLUMN(r))]);
      sum.y = mma_pair(sum.y, a, b_step[MMA_B_AT(k, MMA_COLUMN(r) + 1)]);
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

#define MMA_FETCH(b, panel, step)                                           \
  {                                                                         \
    mma_fetch_a(a_coming_, &matrix, &now, step, item, whole_);              \
    mma_fetch_b(b_coming_, &(b), panel, now.k + (step), now.depth - (step), \
                matrix.k_count - ELEMENTS(now.k + (step)), item);           \
  }
#define MMA_PUT(stage)                                               \
  {                                                                  \
    local uint* step_ = (local uint*)mma_shared + (stage)*MMA_STAGE; \
    mma_put_a(a_coming_, step_, &now, item);                         \
    mma_put_b(b_coming_, step_ + MMA_WORDS_A, item);                 \
  }

// sums_ = A * b over all of the tile's depth; every work-item of the group takes part.
#define MMA_PRODUCT(b, panel)                                                                     \
  const int item = (int)get_local_id(0);                                                          \
  const int warp_ = item / 32, lane_ = item % 32;                                                 \
  const int whole_ = MMA_WHOLE_A;                                                                 \
  uint4 a_coming_[2 * MMA_DOUBLES_A], b_coming_[MMA_QUADS_B];                                     \
  float2 sums_[MMA_RESULTS];                                                                      \
  _Pragma("unroll") for (int r = 0; r < MMA_RESULTS; ++r) sums_[r] = (float2)(0.0f);              \
  int k_ = 0, stage_ = 0;                                                                         \
  MMA_SKIP(k_)                                                                                    \
  if (k_ < now.depth) MMA_FETCH(b, panel, k_)                                                     \
  /* The steps, and the tile in their place, are free to be overwritten. */                       \
  barrier(CLK_LOCAL_MEM_FENCE);                                                                   \
  if (k_ < now.depth) MMA_PUT(0)                                                                  \
  while (k_ < now.depth) {                                                                        \
    int next_k_ = k_ + DEPTH;                                                                     \
    MMA_SKIP(next_k_)                                                                             \
    if (next_k_ < now.depth) MMA_FETCH(b, panel, next_k_)                                         \
    /* This step is complete, and all have read the one before it, whose place the next takes. */ \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                 \
    local const uint* step = (local const uint*)mma_shared + stage_ * MMA_STAGE;                  \
    mma_multiply(sums_, step, step + MMA_WORDS_A, warp_, lane_);                                  \
    stage_ = 1 - stage_;                                                                          \
    if (next_k_ < now.depth) MMA_PUT(stage_)                                                      \
    k_ = next_k_;                                                                                 \
  }

#endif
