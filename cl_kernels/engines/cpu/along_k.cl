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

// Two rows of A are read at once where the sums of one are half of the registers: each vector of B
// is loaded once for both. With fewer tokens reading A is the bound, and two rows took 4% longer.
#if 2 * ALONG_K == LANES
#define ALONG_K_ROWS 2
#else
#define ALONG_K_ROWS 1
#endif
#define ALONG_K_SUMS (LANES / ALONG_K_ROWS)  // of a row

// ALONG_K tokens (a power of two, LANES at most; the rest of a panel is padding) have ALONG_K_SUMS
// sums between them for each row, so that no multiplication waits for the one before. The total of
// each token, in its lane; those of a second row begin in the middle.
static inline lane_f token_sums(lane_f* sums) {
#pragma unroll
  for (int row = 0; row < ALONG_K_ROWS; ++row) {
    lane_f* own = sums + row * ALONG_K_SUMS;
#pragma unroll
    for (int i = ALONG_K; i < ALONG_K_SUMS; ++i) {
      own[i % ALONG_K] += own[i];
      own[i] = (lane_f)(0.0f);
    }
  }
  lane_transpose(sums);
  lane_f total = sums[0];
#pragma unroll
  for (int i = 1; i < LANES; ++i) total += sums[i];
  return total;
}

#define ADD_PRODUCTS(at)                                                      \
  {                                                                           \
    LANE_WORD a[ALONG_K_ROWS];                                                \
    _Pragma("unroll") for (int r = 0; r < ALONG_K_ROWS; ++r) {                \
      a[r] = ALONG_K_LOAD(row[r] + ELEMENTS(at));                             \
    }                                                                         \
    const int of_phase = (at) / LANES * ALONG_K % ALONG_K_SUMS;               \
    _Pragma("unroll") for (int n = 0; n < ALONG_K; ++n) {                     \
      const LANE_WORD column = LANE_LOAD(columns + (at)*ALONG_K + n * LANES); \
      _Pragma("unroll") for (int r = 0; r < ALONG_K_ROWS; ++r) {              \
        MULTIPLY_ADD(sum[r * ALONG_K_SUMS + of_phase + n], a[r], column)      \
      }                                                                       \
    }                                                                         \
  }

// The same rows of the next tile are asked for meanwhile: pieces of k are too short for the
// hardware to run ahead. (Where that has no such row, for the row that is being read: no condition
// then parts the loop.)
ALWAYS_INLINE void multiply_along_k(global float* c, const matrix_a matrix, const matrix_b b,
                                    int panel, const a_tile now, const a_tile next, int first) {
  for (int m = 0; m < now.rows; m += ALONG_K_ROWS) {
    global const ELEMENT(A_TYPE) * row[ALONG_K_ROWS];
    global const ELEMENT(A_TYPE) * ahead[ALONG_K_ROWS];
    int at[ALONG_K_ROWS];  // the last row of an odd number is read twice and stored once
#pragma unroll
    for (int r = 0; r < ALONG_K_ROWS; ++r) {
      at[r] = min(m + r, now.rows - 1);
      row[r] = A_ADDRESS(now, at[r], 0);
      ahead[r] = at[r] < next.rows ? A_ADDRESS(next, at[r], 0) : row[r];
    }
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
        if (i % (LANES * ALONG_K_LINE) == 0) {
#pragma unroll
          for (int r = 0; r < ALONG_K_ROWS; ++r) PREFETCH(ahead[r] + ELEMENTS(k + i))
        }
        ADD_PRODUCTS(i)
      }
#pragma unroll
      for (int r = 0; r < ALONG_K_ROWS; ++r) row[r] += ELEMENTS(LANES * ALONG_K_TURN);
      columns += LANES * ALONG_K_TURN * ALONG_K;
    }
    for (; k + LANES <= whole; k += LANES) {
      ADD_PRODUCTS(0)
#pragma unroll
      for (int r = 0; r < ALONG_K_ROWS; ++r) row[r] += ELEMENTS(LANES);
      columns += LANES * ALONG_K;
    }
    lane_f total[ALONG_K_ROWS];
    total[0] = token_sums(sum);
#if ALONG_K_ROWS == 2
    total[1] = total[0];
    total[1].lo = total[0].hi;
#endif
    for (; k < now.depth; ++k) {
      WORD column[LANES];
      for (int n = 0; n < LANES; ++n) column[n] = B_ALONG_K(all_columns, n % ALONG_K, k);
#pragma unroll
      for (int r = 0; r < ALONG_K_ROWS; ++r) {
        MULTIPLY_ADD(total[r], (LANE_WORD)(A_AT(now, at[r], k)), LANE_LOAD(column))
      }
    }
#pragma unroll
    for (int r = 0; r < ALONG_K_ROWS; ++r) {
      if (m + r >= now.rows) continue;
      global float* to = c + (long)(m + r) * TILE_N;
      LANE_STORE(first ? total[r] : total[r] + LANE_LOAD(to), to);
    }
  }
}

#endif
