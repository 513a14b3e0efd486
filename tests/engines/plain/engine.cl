// SPDX-License-Identifier: Apache-2.0
// The contract of cl_kernels/engines/engine.cl in its plainest form, to start from on a new device:
// a work-group has a work-item for each element of a TILE_M x TILE_N tile, which keeps it in a
// register and reads both operands from global memory. TILE_M work-items hold rows of the same
// column, so that what a column comes to goes through local memory; an engine with matrix units
// does the same by shuffles.
#ifndef TESSERA_PLAIN_ENGINE_CL
#define TESSERA_PLAIN_ENGINE_CL

#define PLAIN_ITEMS (TILE_M * TILE_N)
#define ENGINE_KERNEL __attribute__((reqd_work_group_size(PLAIN_ITEMS, 1, 1)))
#define ENGINE_LOCALS                    \
  local float plain_values[PLAIN_ITEMS]; \
  local int plain_indices[PLAIN_ITEMS];
#define ENGINE_SETUP(scratch)                       \
  const int item_m = (int)get_local_id(0) / TILE_N; \
  const int item_n = (int)get_local_id(0) % TILE_N; \
  float c_element = 0.0f;
#define A_STRIP TILE_M
#define ENGINE_WHOLE_K 1

// The tile is one element of each work-item. The host gives
// all of k in one step, so that one is enough.
#define c_tile float*
#define ENGINE_TILE(index) (&c_element)
#define FOR_COLUMNS(column) for (int column = item_n; column < TILE_N; column += TILE_N)
#define FOR_ROWS(m, rows) for (int m = item_m; m < (rows); m += TILE_M)
#define FOR_ELEMENTS(m, rows, column) \
  FOR_ROWS(m, rows)                   \
    FOR_COLUMNS(column)
#define TILE_AT(tile, m, column) (*(tile))
#define TILE_SET(tile, m, column, value) (*(tile) = (value))

// Every holder of a column puts down what it has, and all of them read all of it, in order.
#define PLAIN_GATHER(values, value)                                                           \
  values[item_m * TILE_N + item_n] = value;                                                   \
  /* Complete before anybody reads it; and what all have read of global memory so far is read \
     before an owner writes there. */                                                         \
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
static inline float plain_max(float value, local float* values, int item_m, int item_n) {
  PLAIN_GATHER(values, value)
  float result = values[item_n];
  for (int m = 1; m < TILE_M; ++m) {
    const float other = values[m * TILE_N + item_n];
    result = other > result ? other : result;
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
static inline float plain_sum(float value, local float* values, int item_m, int item_n) {
  PLAIN_GATHER(values, value)
  float result = 0.0f;
  for (int m = 0; m < TILE_M; ++m) result += values[m * TILE_N + item_n];
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
static inline int plain_min_index(int index, local int* indices, int item_m, int item_n) {
  PLAIN_GATHER(indices, index)
  int result = indices[item_n];
  for (int m = 1; m < TILE_M; ++m) result = min(result, indices[m * TILE_N + item_n]);
  barrier(CLK_LOCAL_MEM_FENCE);  // read before it is written again
  return result;
}
#define COLUMN_MAX(v) plain_max(v, plain_values, item_m, item_n)
#define COLUMN_SUM(v) plain_sum(v, plain_values, item_m, item_n)
#define COLUMN_MIN_INDEX(i) plain_min_index(i, plain_indices, item_m, item_n)
#define COLUMN_OWNER (item_m == 0)
#define COLUMN_SYNC barrier(CLK_GLOBAL_MEM_FENCE);  // written by one, read by all for the next tile

// Nothing is brought in ahead.
#define ENGINE_LOAD
#define ENGINE_TURN

#if A_OPERAND
#define A_AT(k_)                                                                                \
  operand_element(                                                                              \
      matrix.base + operand_index(matrix.extent, (k_) / TILE_N, now.m + item_m, (k_) % TILE_N), \
      now.m + item_m)
#else
#define A_AT(k_) \
  LOAD(A_TYPE, matrix.base, (now.m + item_m) * matrix.m_stride + (now.k + (k_)) * matrix.k_stride)
#endif
#if B_STORED
#define B_AT(b, panel, k) operand_element((b).base + operand_index((b).extent, panel, k, item_n), k)
#else
#define B_AT(b, panel, k) \
  (((global const float*)(b).base)[panel_index((b).extent, panel, k, item_n)])
#endif
#ifdef K_KEPT
#define PLAIN_SKIP(k)                                  \
  if ((k) % K_KEPT_STEP == 0) counts_here = K_KEPT(k); \
  if (!counts_here) continue;
#else
#define PLAIN_SKIP(k)
#endif

// The element (now.m + item_m, column item_n of the panel) of the product.
#define PLAIN_PRODUCT(sum, b, panel)                      \
  float sum = 0.0f;                                       \
  if (item_m < now.rows) {                                \
    int counts_here = 1;                                  \
    for (int k = 0; k < now.depth; ++k) {                 \
      PLAIN_SKIP(k)                                       \
      sum = fma(A_AT(k), B_AT(b, panel, now.k + k), sum); \
    }                                                     \
  }

#define ENGINE_MULTIPLY(tile, b, panel, index, count) \
  {                                                   \
    PLAIN_PRODUCT(sum, b, panel)                      \
    *(tile) = sum;                                    \
  }

// No work-item reads another's sums, so nothing has to be waited for.
#define ENGINE_ACCUMULATE(sums, b, panel, index, count, first)    \
  {                                                               \
    PLAIN_PRODUCT(sum, b, panel)                                  \
    if (item_m < now.rows) {                                      \
      global float* at = (sums) + (long)item_m * TILE_N + item_n; \
      *at = (first) ? sum : *at + sum;                            \
    }                                                             \
  }
#define ENGINE_RESCALE(sums, rows, factors)                 \
  FOR_ROWS(m, rows) {                                       \
    (sums)[(long)m * TILE_N + item_n] *= (factors)[item_n]; \
  }

#define ENGINE_STORE(tile, to, m_stride, n_stride, m_count, n_count, how)                     \
  if (item_m < (m_count) && item_n < (n_count)) {                                             \
    const long at = item_m * (m_stride) + item_n * (n_stride);                                \
    STORE(OUT_TYPE, to, at, (how) == STORE_ADD ? LOAD(OUT_TYPE, to, at) + *(tile) : *(tile)); \
  }
#define ENGINE_CLEAR(to, m_stride, n_stride, m_count, n_count)  \
  FOR_ROWS(m, m_count) {                                        \
    for (int n = item_n; n < (n_count); n += TILE_N) {          \
      STORE(OUT_TYPE, to, m*(m_stride) + n * (n_stride), 0.0f); \
    }                                                           \
  }

#endif
