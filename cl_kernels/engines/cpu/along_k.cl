// SPDX-License-Identifier: Apache-2.0
// C (+)= A * B for few tokens and an A that is contiguous along k: each vector of A is loaded once,
// where it is used, and the lanes run along k instead of across tokens. Nothing is packed, so what
// a core can multiply keeps up with what it can read.
//
// B is [k / LANES][ALONG_K][LANES] words here, so that all addresses of a step are constants apart
// and nothing but tokens lies in the first-level cache; it starts at a multiple of LANES, and its
// last step may be in part. Its panel has room for TILE_N tokens.
#ifndef TESSERA_ALONG_K_CL
#define TESSERA_ALONG_K_CL

#define B_ALONG_K(b, n, k) (b)[((k) / LANES * ALONG_K + (n)) * LANES + (k) % LANES]
// Vectors of A in a line of 64 bytes, and in a turn of the loop. Widening takes the time of several
// sums; a product of pairs waits for the one before unless eight others are on their way.
#define ALONG_K_LINE (64 / (LANES * ELEMENTS(1) * (int)sizeof(ELEMENT(A_TYPE))))
#if DOT_BF16
#define ALONG_K_LOAD(p) LANE_LOAD_PAIRS(p)
#define ALONG_K_TURN (ALONG_K_LINE * ALONG_K < 8 ? 8 / ALONG_K : ALONG_K_LINE)
#else
#define ALONG_K_LOAD(p) LANE_LOAD_TYPE(A_TYPE, p)
#define ALONG_K_TURN ALONG_K_LINE
#endif

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

#define ADD_PRODUCTS(at)                                                                \
  {                                                                                     \
    const LANE_WORD a = ALONG_K_LOAD(row + ELEMENTS(at));                               \
    const int of_phase = (at) / LANES * ALONG_K % LANES;                                \
    _Pragma("unroll") for (int n = 0; n < ALONG_K; ++n) {                               \
      MULTIPLY_ADD(sum[of_phase + n], a, LANE_LOAD(columns + (at)*ALONG_K + n * LANES)) \
    }                                                                                   \
  }

// The same rows of the next tile are asked for meanwhile: pieces of k are too short for the
// hardware to run ahead. (Where that has no such row, for the row that is being read: no condition
// then parts the loop.)
ALWAYS_INLINE void multiply_along_k(global float* c, const matrix_a matrix, const matrix_b b,
                                    int panel, const a_tile now, const a_tile next, int first) {
  for (int m = 0; m < now.rows; ++m) {
    global const ELEMENT(A_TYPE)* row = A_ADDRESS(now, m, 0);
    global const ELEMENT(A_TYPE)* ahead = m < next.rows ? A_ADDRESS(next, m, 0) : row;
    global const WORD* all_columns =
        (global const WORD*)b.base + panel_index(b.extent, panel, 0, 0) + (long)now.k * ALONG_K;
    global const WORD* columns = all_columns;
    lane_f sum[LANES];
#pragma unroll
    for (int n = 0; n < LANES; ++n) sum[n] = (lane_f)(0.0f);
    const int whole = A_WHOLE(now);
    int k = 0;
    for (; k + LANES * ALONG_K_TURN <= whole; k += LANES * ALONG_K_TURN) {
#pragma unroll
      for (int i = 0; i < LANES * ALONG_K_TURN; i += LANES) {
        if (i % (LANES * ALONG_K_LINE) == 0) PREFETCH(ahead + ELEMENTS(k + i))
        ADD_PRODUCTS(i)
      }
      row += ELEMENTS(LANES * ALONG_K_TURN);
      columns += LANES * ALONG_K_TURN * ALONG_K;
    }
    for (; k + LANES <= whole; k += LANES) {
      ADD_PRODUCTS(0)
      row += ELEMENTS(LANES);
      columns += LANES * ALONG_K;
    }
    lane_f total = token_sums(sum);
    for (; k < now.depth; ++k) {
      WORD column[LANES];
      for (int n = 0; n < LANES; ++n) column[n] = B_ALONG_K(all_columns, n % ALONG_K, k);
      MULTIPLY_ADD(total, (LANE_WORD)(A_AT(now, m, k)), LANE_LOAD(column))
    }
    global float* to = c + (long)m * TILE_N;
    LANE_STORE(first ? total : total + LANE_LOAD(to), to);
  }
}

#endif
