// SPDX-License-Identifier: Apache-2.0
// The portable engine: a work-group of SIMT_ITEMS work-items computes a TILE_M x TILE_N tile
// through local memory, each work-item ITEM_M x ITEM_N elements of it in registers. OpenCL C 1.2
// core only; 64 x 64 with panels 16 deep takes 16 KiB + 2 * 4.25 KiB of local memory, below the
// 32 KiB that every device has.
#ifndef TESSERA_SIMT_ENGINE_CL
#define TESSERA_SIMT_ENGINE_CL

#define SIMT_COLUMNS (TILE_N / ITEM_N)
#define SIMT_ROWS (TILE_M / ITEM_M)
#define SIMT_ITEMS (SIMT_COLUMNS * SIMT_ROWS)
// Four spare elements a row: neighbours that store down a column then hit different banks, and four
// elements are still read at once.
#define SIMT_LD_A (TILE_M + 4)
// A work-item's elements come four side by side, so that it reads them of local memory at once.
#define SIMT_M(m) ((m) / 4 * (4 * SIMT_ROWS) + item_m * 4 + (m) % 4)
#define SIMT_N(n) ((n) / 4 * (4 * SIMT_COLUMNS) + item_n * 4 + (n) % 4)
#define SIMT_FOUR(p) (*(local const float4*)(p))

#define ENGINE_KERNEL __attribute__((reqd_work_group_size(SIMT_ITEMS, 1, 1)))
#define ENGINE_SETUP(scratch)
#define A_STRIP TILE_M
#define ENGINE_WHOLE_K 1

// A tile lives in local memory, for one panel of columns only: the host gives all of k in one step.
#define c_tile local float*
#define ENGINE_TILE(index) tile_c
// A column belongs to one work-item, which holds all of it.
#define FOR_COLUMNS(column) \
  for (int column = (int)get_local_id(0); column < TILE_N; column += SIMT_ITEMS)
#define FOR_ROWS(m, rows) for (int m = 0; m < (rows); ++m)
#define FOR_ELEMENTS(m, rows, column) \
  FOR_ROWS(m, rows)                   \
    FOR_COLUMNS(column)
#define TILE_AT(tile, m, column) (tile)[(m)*TILE_N + (column)]
#define TILE_SET(tile, m, column, value) ((tile)[(m)*TILE_N + (column)] = (value))
#define COLUMN_MAX(v) (v)
#define COLUMN_SUM(v) (v)
#define COLUMN_MIN_INDEX(i) (i)
#define COLUMN_OWNER 1
#define COLUMN_SYNC

// Local arrays may only be declared in a kernel. Sums that are accumulated in memory need no tile.
#if PRODUCT == PRODUCT_ACCUMULATE
#define SIMT_TILE
#else
#define SIMT_TILE local float tile_c[TILE_M * TILE_N];
#endif
#define ENGINE_LOCALS                                \
  SIMT_TILE                                          \
  local float4 panel_a4[SIMT_DEPTH * SIMT_LD_A / 4]; \
  local float4 panel_b4[SIMT_DEPTH * TILE_N / 4];
// A is read panel by panel inside the multiplication.
#define ENGINE_LOAD
#define ENGINE_TURN

#if A_OPERAND
#define A_AT(m_, k_)                                                                          \
  operand_element(                                                                            \
      matrix.base + operand_index(matrix.extent, (k_) / TILE_N, now.m + (m_), (k_) % TILE_N), \
      now.m + (m_))
#else
#define A_AT(m_, k_) \
  LOAD(A_TYPE, matrix.base, (now.m + (m_)) * matrix.m_stride + (now.k + (k_)) * matrix.k_stride)
#endif

// The same for every work-item of the group; K_KEPT_STEP is a multiple of SIMT_DEPTH.
#ifdef K_KEPT
#define SIMT_SKIP(k) \
  if (!(K_KEPT((k) / K_KEPT_STEP * K_KEPT_STEP))) continue;
#else
#define SIMT_SKIP(k)
#endif

#define SIMT_FOURS_B (SIMT_DEPTH * TILE_N / 4)
#define SIMT_LOADS_A (SIMT_DEPTH * TILE_M / SIMT_ITEMS)
#define SIMT_LOADS_B ((SIMT_FOURS_B + SIMT_ITEMS - 1) / SIMT_ITEMS)
// Sums are in registers only where every index of theirs is known.
#define UNROLLED _Pragma("unroll")
// PoCL then goes over work-items one by one where it reads sums from memory: grad_x took 3.8 times
// as long.
#if IS_GPU
#define UNROLLED_ON_GPU UNROLLED
#else
#define UNROLLED_ON_GPU
#endif

// acc = A * b over all of the tile's depth; every work-item of the group takes part.
#define SIMT_PRODUCT(b, panel)                                                                    \
  const int item = (int)get_local_id(0);                                                          \
  const int item_m = item / SIMT_COLUMNS;                                                         \
  const int item_n = item % SIMT_COLUMNS;                                                         \
  global const float* columns_ =                                                                  \
      (global const float*)(b).base + panel_index((b).extent, panel, now.k, 0);                   \
  local float* panel_a = (local float*)panel_a4;                                                  \
  local float* panel_b = (local float*)panel_b4;                                                  \
  float acc[ITEM_M][ITEM_N];                                                                      \
  UNROLLED for (int m = 0; m < ITEM_M; ++m) UNROLLED for (int n = 0; n < ITEM_N; ++n) acc[m][n] = \
      0.0f;                                                                                       \
  for (int k0 = 0; k0 < now.depth; k0 += SIMT_DEPTH) {                                            \
    SIMT_SKIP(k0)                                                                                 \
    /* The panels, and the tile that an epilogue reads, are free to be overwritten. */            \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                 \
    /* All loads before the first of them is needed. */                                           \
    float a_coming[SIMT_LOADS_A];                                                                 \
    float4 b_coming[SIMT_LOADS_B];                                                                \
    UNROLLED for (int j = 0; j < SIMT_LOADS_A; ++j) {                                             \
      SIMT_A_INDEX(item + j * SIMT_ITEMS)                                                         \
      a_coming[j] = m < now.rows && k0 + k < now.depth ? A_AT(m, k0 + k) : 0.0f;                  \
    }                                                                                             \
    UNROLLED for (int j = 0; j < SIMT_LOADS_B; ++j) {                                             \
      const int i = item + j * SIMT_ITEMS;                                                        \
      b_coming[j] = i < SIMT_FOURS_B && k0 + i / (TILE_N / 4) < now.depth                         \
                        ? ((global const float4*)columns_)[(long)k0 * (TILE_N / 4) + i]           \
                        : (float4)(0.0f);                                                         \
    }                                                                                             \
    UNROLLED for (int j = 0; j < SIMT_LOADS_A; ++j) {                                             \
      SIMT_A_INDEX(item + j * SIMT_ITEMS)                                                         \
      panel_a[k * SIMT_LD_A + m] = a_coming[j];                                                   \
    }                                                                                             \
    UNROLLED for (int j = 0; j < SIMT_LOADS_B; ++j) {                                             \
      const int i = item + j * SIMT_ITEMS;                                                        \
      if (i < SIMT_FOURS_B) panel_b4[i] = b_coming[j];                                            \
    }                                                                                             \
    /* Both panels are complete before anybody reads them. */                                     \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                 \
    for (int k = 0; k < SIMT_DEPTH; ++k) {                                                        \
      float a_column[ITEM_M];                                                                     \
      float b_row[ITEM_N];                                                                        \
      UNROLLED for (int m = 0; m < ITEM_M; m += 4)                                                \
          vstore4(SIMT_FOUR(panel_a + k * SIMT_LD_A + SIMT_M(m)), 0, a_column + m);               \
      UNROLLED for (int n = 0; n < ITEM_N; n += 4)                                                \
          vstore4(SIMT_FOUR(panel_b + k * TILE_N + SIMT_N(n)), 0, b_row + n);                     \
      UNROLLED for (int m = 0; m < ITEM_M; ++m) UNROLLED for (int n = 0; n < ITEM_N; ++n)         \
          acc[m][n] = fma(a_column[m], b_row[n], acc[m][n]);                                      \
    }                                                                                             \
  }

// Neighbouring work-items read along whichever index is contiguous in memory.
#if A_LAYOUT == ALONG_FIRST && !A_OPERAND
#define SIMT_A_INDEX(i)       \
  const int m = (i) % TILE_M; \
  const int k = (i) / TILE_M;
#else
#define SIMT_A_INDEX(i)           \
  const int k = (i) % SIMT_DEPTH; \
  const int m = (i) / SIMT_DEPTH;
#endif

// Into the local tile, for an epilogue; complete when this returns.
#define ENGINE_MULTIPLY(tile, b, panel, index, count)                                     \
  {                                                                                       \
    SIMT_PRODUCT(b, panel)                                                                \
    /* With depth 0 the loop above has no barrier; an earlier epilogue may still read. */ \
    barrier(CLK_LOCAL_MEM_FENCE);                                                         \
    UNROLLED for (int m = 0; m < ITEM_M; ++m) UNROLLED for (int n = 0; n < ITEM_N; ++n)   \
        TILE_SET(tile, SIMT_M(m), SIMT_N(n), acc[m][n]);                                  \
    /* The epilogue reads elements that other work-items wrote. */                        \
    barrier(CLK_LOCAL_MEM_FENCE);                                                         \
  }

// Straight into memory, for sums that outlive the group. No work-item reads another's elements, so
// nothing has to be waited for.
#define ENGINE_ACCUMULATE(sums, b, panel, index, count, first)  \
  {                                                             \
    SIMT_PRODUCT(b, panel)                                      \
    global float* to_ = (sums);                                 \
    UNROLLED_ON_GPU for (int m = 0; m < ITEM_M; ++m) {          \
      const int r = SIMT_M(m);                                  \
      if (r >= now.rows) continue;                              \
      UNROLLED_ON_GPU for (int n = 0; n < ITEM_N; ++n) {        \
        global float* at_ = to_ + (long)r * TILE_N + SIMT_N(n); \
        *at_ = (first) ? acc[m][n] : *at_ + acc[m][n];          \
      }                                                         \
    }                                                           \
  }
#define ENGINE_RESCALE(sums, rows, factors)                 \
  {                                                         \
    const int item_m = (int)get_local_id(0) / SIMT_COLUMNS; \
    const int item_n = (int)get_local_id(0) % SIMT_COLUMNS; \
    for (int r = item_m; r < (rows); r += SIMT_ROWS)        \
      for (int n = item_n; n < TILE_N; n += SIMT_COLUMNS)   \
        (sums)[(long)r * TILE_N + n] *= (factors)[n];       \
  }

// Neighbouring work-items write along the matrix's contiguous index.
#if OUT_LAYOUT == ALONG_FIRST
#define SIMT_FOR_OUT(m, n, m_count, n_count) \
  for (int i = (int)get_local_id(0), m, n;   \
       i < (m_count) * (n_count) && (m = i % (m_count), n = i / (m_count), 1); i += SIMT_ITEMS)
#else
#define SIMT_FOR_OUT(m, n, m_count, n_count) \
  for (int i = (int)get_local_id(0), m, n;   \
       i < (m_count) * (n_count) && (n = i % (n_count), m = i / (n_count), 1); i += SIMT_ITEMS)
#endif
#define ENGINE_STORE(tile, to, m_stride, n_stride, m_count, n_count, how)                     \
  SIMT_FOR_OUT(m, n, m_count, n_count) {                                                      \
    const long at_ = m * (m_stride) + n * (n_stride);                                         \
    const float value_ = TILE_AT(tile, m, n);                                                 \
    STORE(OUT_TYPE, to, at_, (how) == STORE_ADD ? LOAD(OUT_TYPE, to, at_) + value_ : value_); \
  }
#define ENGINE_CLEAR(to, m_stride, n_stride, m_count, n_count) \
  SIMT_FOR_OUT(m, n, m_count, n_count) {                       \
    STORE(OUT_TYPE, to, m*(m_stride) + n * (n_stride), 0.0f);  \
  }

#endif
