// SPDX-License-Identifier: Apache-2.0
// C (+)= A * B for few tokens and an A that is contiguous along k: each vector of A is loaded once,
// where it is used, and the lanes run along k instead of across tokens. Nothing is packed, so what
// a core can multiply keeps up with what it can read.
//
// B is [k / LANES][PRODUCT_ALONG_K][LANES] words here, so that all addresses of a step are
// constants apart and nothing but tokens lies in the first-level cache; it starts at a multiple of
// LANES, and its last step may be in part. Its panel has room for TILE_N tokens.

// Vectors of A in a line of 64 bytes, and in a turn of the loop. Widening takes the time of several
// sums; a product of pairs waits for the one before unless eight others are on their way.
#define PRODUCT_LINE_VECTORS \
  (64 / (LANES * PRODUCT_WORD_ELEMENTS * (int)sizeof(ELEMENT(PRODUCT_A_TYPE))))
#if PRODUCT_DOT_BF16
#define PRODUCT_TURN_VECTORS \
  (PRODUCT_LINE_VECTORS * PRODUCT_ALONG_K < 8 ? 8 / PRODUCT_ALONG_K : PRODUCT_LINE_VECTORS)
#else
#define PRODUCT_TURN_VECTORS PRODUCT_LINE_VECTORS
#endif

// Two rows of A are read at once where the sums of one are half of the registers: each vector of B
// is loaded once for both. With fewer tokens reading A is the bound, and two rows took 4% longer.
#if 2 * PRODUCT_ALONG_K == LANES
#define PRODUCT_ROWS 2
#else
#define PRODUCT_ROWS 1
#endif
#define PRODUCT_ROW_SUMS (LANES / PRODUCT_ROWS)

// PRODUCT_ALONG_K tokens (a power of two, LANES at most; the rest of a panel is padding) have
// PRODUCT_ROW_SUMS sums between them for each row, so that no multiplication waits for the one
// before. The total of each token, in its lane; those of a second row begin in the middle.
static inline lane_f product_token_sums(lane_f* sums) {
#pragma unroll
  for (int row = 0; row < PRODUCT_ROWS; ++row) {
    lane_f* own = sums + row * PRODUCT_ROW_SUMS;
#pragma unroll
    for (int i = PRODUCT_ALONG_K; i < PRODUCT_ROW_SUMS; ++i) {
      own[i % PRODUCT_ALONG_K] += own[i];
      own[i] = (lane_f)(0.0f);
    }
  }
  lane_transpose(sums);
  lane_f total = sums[0];
#pragma unroll
  for (int i = 1; i < LANES; ++i) total += sums[i];
  return total;
}

// LANES words of each row, `at` words beyond where they begin.
ALWAYS_INLINE void product_add_vectors(lane_f* sum,
                                       global const ELEMENT(PRODUCT_A_TYPE) * const* row,
                                       global const product_word* columns, int at) {
  product_lanes a[PRODUCT_ROWS];
#pragma unroll
  for (int r = 0; r < PRODUCT_ROWS; ++r) {
    a[r] = product_a_vector(row[r] + PRODUCT_WORD_ELEMENTS * at);
  }
  const int phase = at / LANES * PRODUCT_ALONG_K % PRODUCT_ROW_SUMS;
#pragma unroll
  for (int n = 0; n < PRODUCT_ALONG_K; ++n) {
    const product_lanes column = LANE_LOAD(columns + at * PRODUCT_ALONG_K + n * LANES);
#pragma unroll
    for (int r = 0; r < PRODUCT_ROWS; ++r) {
      lane_f* to = sum + r * PRODUCT_ROW_SUMS + phase + n;
      *to = product_add(*to, a[r], column);
    }
  }
}

// The same rows of the next tile are asked for meanwhile: pieces of k are too short for the
// hardware to run ahead. (Where that has no such row, for the row that is being read: no condition
// then parts the loop.)
ALWAYS_INLINE void product_multiply_rows(product_state* p, global float* c, int panel, int first) {
  const a_tile now = p->now, next = p->next;
  for (int m = 0; m < now.rows; m += PRODUCT_ROWS) {
    global const ELEMENT(PRODUCT_A_TYPE) * row[PRODUCT_ROWS];
    global const ELEMENT(PRODUCT_A_TYPE) * ahead[PRODUCT_ROWS];
    int at[PRODUCT_ROWS];  // the last row of an odd number is read twice and stored once
#pragma unroll
    for (int r = 0; r < PRODUCT_ROWS; ++r) {
      at[r] = min(m + r, now.rows - 1);
      row[r] = product_a_element(&p->a, &now, at[r], 0);
      ahead[r] = at[r] < next.rows ? product_a_element(&p->a, &next, at[r], 0) : row[r];
    }
    global const product_word* all_columns = (global const product_word*)p->b.base +
                                             panel_index(p->b.extent, panel, 0, 0) +
                                             (long)now.k * PRODUCT_ALONG_K;
    global const product_word* columns = all_columns;
    lane_f sum[LANES];
#pragma unroll
    for (int n = 0; n < LANES; ++n) sum[n] = (lane_f)(0.0f);
    const int whole = product_a_whole(&p->a, &now);
    int k = 0;
    for (; k + LANES * PRODUCT_TURN_VECTORS <= whole; k += LANES * PRODUCT_TURN_VECTORS) {
#pragma unroll
      for (int i = 0; i < LANES * PRODUCT_TURN_VECTORS; i += LANES) {
        if (i % (LANES * PRODUCT_LINE_VECTORS) == 0) {
#pragma unroll
          for (int r = 0; r < PRODUCT_ROWS; ++r)
            PREFETCH(ahead[r] + PRODUCT_WORD_ELEMENTS * (k + i));
        }
        product_add_vectors(sum, row, columns, i);
      }
#pragma unroll
      for (int r = 0; r < PRODUCT_ROWS; ++r) {
        row[r] += PRODUCT_WORD_ELEMENTS * LANES * PRODUCT_TURN_VECTORS;
      }
      columns += LANES * PRODUCT_TURN_VECTORS * PRODUCT_ALONG_K;
    }
    for (; k + LANES <= whole; k += LANES) {
      product_add_vectors(sum, row, columns, 0);
#pragma unroll
      for (int r = 0; r < PRODUCT_ROWS; ++r) row[r] += PRODUCT_WORD_ELEMENTS * LANES;
      columns += LANES * PRODUCT_ALONG_K;
    }
    lane_f total[PRODUCT_ROWS];
    total[0] = product_token_sums(sum);
#if PRODUCT_ROWS == 2
    total[1] = total[0];
    total[1].lo = total[0].hi;
#endif
    for (; k < now.depth; ++k) {
      product_word column[LANES];
      for (int n = 0; n < LANES; ++n) {
        column[n] =
            all_columns[(k / LANES * PRODUCT_ALONG_K + n % PRODUCT_ALONG_K) * LANES + k % LANES];
      }
#pragma unroll
      for (int r = 0; r < PRODUCT_ROWS; ++r) {
        total[r] = product_add(total[r], (product_lanes)(product_a_at(&p->a, &now, at[r], k)),
                               LANE_LOAD(column));
      }
    }
#pragma unroll
    for (int r = 0; r < PRODUCT_ROWS; ++r) {
      if (m + r >= now.rows) continue;
      global float* to = c + (long)(m + r) * TILE_N;
      LANE_STORE(first ? total[r] : total[r] + LANE_LOAD(to), to);
    }
  }
}
