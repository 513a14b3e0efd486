// SPDX-License-Identifier: Apache-2.0
// C (+)= A * B for few tokens and an A of 16 bits that is contiguous along k: each vector of A is
// widened once, where it is used, and the lanes run along k instead of across tokens. Nothing is
// packed, so what a core can widen and multiply keeps up with what it can read.
//
// B is [k / LANES][ALONG_K][LANES] here, so that all addresses of a step are constants apart and
// nothing but tokens lies in the first-level cache; it starts at a multiple of LANES, and its last
// step may be in part. Its panel has room for TILE_N tokens.
#ifndef TESSERA_ALONG_K_CL
#define TESSERA_ALONG_K_CL

#define B_ALONG_K(b, n, k) (b)[((k) / LANES * ALONG_K + (n)) * LANES + (k) % LANES]
// Vectors of A in a line of 64 bytes.
#define ALONG_K_LINE (64 / (LANES * (int)sizeof(ELEMENT(A_TYPE))))

// ALONG_K tokens (a power of two, LANES at most; the rest of a panel
// is padding) have LANES sums between them, so that no multiplication
// waits for the one before. The total of each token, in its lane.
static inline lane_f token_sums(lane_f* sums) {
#pragma unroll
  for (int i = ALONG_K; i < LANES; ++i) {
    sums[i % ALONG_K] += sums[i];
    sums[i] = (lane_f)(0.0f);
  }
  lane_transpose(sums);
  lane_f total = sums[0];
#pragma unroll
  for (int i = 1; i < LANES; ++i) total += sums[i];
  return total;
}

#define ADD_PRODUCTS(at)                                                   \
  {                                                                        \
    const lane_f a = LANE_LOAD_TYPE(A_TYPE, row + (at));                   \
    const int of_phase = (at) / LANES * ALONG_K % LANES;                   \
    _Pragma("unroll") for (int n = 0; n < ALONG_K; ++n) {                  \
      const lane_f column = LANE_LOAD(columns + (at)*ALONG_K + n * LANES); \
      sum[of_phase + n] = fma(a, column, sum[of_phase + n]);               \
    }                                                                      \
  }

// The same rows of the next turn are asked for meanwhile: pieces of k are too short for the
// hardware to run ahead.
#define MULTIPLY_ALONG_K(c, b, panel, first)                                                  \
  for (int m = 0; m < now.rows; ++m) {                                                        \
    global const ELEMENT(A_TYPE)* row = A_ADDRESS(now, m, 0);                                 \
    global const ELEMENT(A_TYPE)* ahead = A_ADDRESS(next, m, 0);                              \
    const int ahead_end = m < next.rows ? next.depth : 0;                                     \
    global const float* all_columns = (global const float*)(b).base +                         \
                                      panel_index((b).extent, panel, 0, 0) +                  \
                                      (long)now.k * ALONG_K;                                  \
    global const float* columns = all_columns;                                                \
    lane_f sum[LANES];                                                                        \
    _Pragma("unroll") for (int n = 0; n < LANES; ++n) sum[n] = (lane_f)(0.0f);                \
    int k = 0;                                                                                \
    for (; k + LANES * ALONG_K_LINE <= now.depth; k += LANES * ALONG_K_LINE) {                \
      if (k < ahead_end) PREFETCH(ahead + k)                                                  \
      _Pragma("unroll") for (int i = 0; i < LANES * ALONG_K_LINE; i += LANES) ADD_PRODUCTS(i) \
      row += LANES * ALONG_K_LINE;                                                            \
      columns += LANES * ALONG_K_LINE * ALONG_K;                                              \
    }                                                                                         \
    for (; k + LANES <= now.depth; k += LANES) {                                              \
      ADD_PRODUCTS(0)                                                                         \
      row += LANES;                                                                           \
      columns += LANES * ALONG_K;                                                             \
    }                                                                                         \
    lane_f total = token_sums(sum);                                                           \
    for (; k < now.depth; ++k) {                                                              \
      float column[LANES];                                                                    \
      for (int n = 0; n < LANES; ++n) column[n] = B_ALONG_K(all_columns, n % ALONG_K, k);     \
      total = fma((lane_f)(A_AT(now, m, k)), LANE_LOAD(column), total);                       \
    }                                                                                         \
    global float* to = (c) + (long)m * TILE_N;                                                \
    LANE_STORE((first) ? total : total + LANE_LOAD(to), to);                                  \
  }

#endif
