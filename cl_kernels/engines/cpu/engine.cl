// SPDX-License-Identifier: Apache-2.0
// The engine for CPUs: work-groups of one work-item, explicit vectors, no barriers and no local
// memory. A tile of MICRO_M rows by NV vectors stays in registers over a whole panel of k; each step
// broadcasts MICRO_M elements of A against NV vectors of B. fma() and not mad(), which drivers may
// split. The numbers are the host's (host/engines/cpu.cpp).
#include "common/lanes.cl"

#define C_SPACE global
#define TILE_N (NV * LANES)
#define TILE_M tile_m  // a run-time argument: how many packed rows fit the cache depends on depth
#define GROUP_BARRIER()
#define FOR_LANE_GROUPS(column) for (int column = 0; column < TILE_N; column += LANES)

// Packed A: rows in strips of MICRO_M. Where the source is contiguous along k a strip keeps its rows
// apart ([MICRO_M][PACK_K(depth)], plain copies); where it is contiguous along m the rows interleave
// ([k][MICRO_M]). Neither needs a transpose. 16 extra elements a row keep rows a power of two apart
// from falling into the same cache sets.
#if A_CONTIGUOUS_M
#define A_ROW_STEP(depth) 1
#define A_K_STEP MICRO_M
#else
#define A_ROW_STEP(depth) ((depth) + 16)
#define A_K_STEP 1
#endif
#define A_STRIP_WORDS(depth) (MICRO_M * ((depth) + 16))

#define ENGINE_LOAD_A(rows, depth)                                                            \
  for (int strip = 0; strip * MICRO_M < (rows); ++strip) {                                    \
    global float* a = pack + (long)strip * A_STRIP_WORDS(depth);                              \
    const int m0 = strip * MICRO_M;                                                           \
    const int full = (rows)-m0 < MICRO_M ? (rows)-m0 : MICRO_M;                               \
    LOAD_STRIP(a, m0, full, depth)                                                            \
  }

#if A_CONTIGUOUS_M
// LANES elements are written where MICRO_M are meant: the next k overwrites the surplus, and the
// strip's 16 spare elements take the last. Near the edge of A single elements are read instead.
#define LOAD_STRIP(a, m0, full, depth)                                                        \
  for (int k = 0; k < (depth); ++k) {                                                         \
    if ((m0) + A_VECTOR_REACH <= A_ROWS_READABLE) {                                           \
      for (int at = 0; at < MICRO_M; at += LANES) {                                           \
        LANE_STORE(A_VECTOR_M((m0) + at, k), (a) + k * MICRO_M + at);                         \
      }                                                                                       \
    } else {                                                                                  \
      for (int m = 0; m < MICRO_M; ++m) {                                                     \
        (a)[k * MICRO_M + m] = m < (full) ? A_AT((m0) + m, k) : 0.0f;                         \
      }                                                                                       \
    }                                                                                         \
  }
// Elements that the vector loads of one strip touch.
#define A_VECTOR_REACH ((MICRO_M + LANES - 1) / LANES * LANES)
#else
#define LOAD_STRIP(a, m0, full, depth)                                                        \
  for (int m = 0; m < MICRO_M; ++m) {                                                         \
    global float* row = (a) + (long)m * A_ROW_STEP(depth);                                    \
    int k = 0;                                                                                \
    if (m >= (full)) {                                                                        \
      for (; k < (depth); ++k) row[k] = 0.0f;                                                 \
    } else {                                                                                  \
      LOAD_ROW_VECTORS(row, (m0) + m, depth)                                                  \
      for (; k < (depth); ++k) row[k] = A_AT((m0) + m, k);                                    \
    }                                                                                         \
  }
#if A_CONTIGUOUS_K
#define LOAD_ROW_VECTORS(row, m, depth) \
  for (; k + LANES <= (depth); k += LANES) LANE_STORE(A_VECTOR_K(m, k), (row) + k);
#else
#define LOAD_ROW_VECTORS(row, m, depth)
#endif
#endif

// One register tile over `depth` steps.
static inline void multiply_strip(global float* c, int ldc, global const float* a, int row_step,
                           global const float* b, int depth, int first) {
  lane_f acc[MICRO_M][NV];
#pragma unroll
  for (int m = 0; m < MICRO_M; ++m) {
#pragma unroll
    for (int n = 0; n < NV; ++n) {
      acc[m][n] = first ? (lane_f)(0.0f) : LANE_LOAD(c + m * ldc + n * LANES);
    }
  }
  for (int k = 0; k < depth; ++k) {
    lane_f column[NV];
#pragma unroll
    for (int n = 0; n < NV; ++n) column[n] = LANE_LOAD(b + n * LANES);
#pragma unroll
    for (int m = 0; m < MICRO_M; ++m) {
      const lane_f broadcast = (lane_f)(a[m * row_step]);
#pragma unroll
      for (int n = 0; n < NV; ++n) acc[m][n] = fma(broadcast, column[n], acc[m][n]);
    }
    a += A_K_STEP;
    b += TILE_N;
  }
#pragma unroll
  for (int m = 0; m < MICRO_M; ++m) {
#pragma unroll
    for (int n = 0; n < NV; ++n) LANE_STORE(acc[m][n], c + m * ldc + n * LANES);
  }
}

// Panels of h_block keep the part of B that every strip reads in the first-level cache.
static inline void engine_multiply(global float* c, int ldc, global const float* pack,
                            global const float* b, int rows, int depth, int first,
                            int h_block) {
  for (int k = 0; k < depth; k += h_block) {
    const int panel = depth - k < h_block ? depth - k : h_block;
    for (int strip = 0; strip * MICRO_M < rows; ++strip) {
      multiply_strip(c + (long)strip * MICRO_M * ldc, ldc,
                     pack + (long)strip * A_STRIP_WORDS(depth) + (long)k * A_K_STEP,
                     A_ROW_STEP(depth), b + (long)k * TILE_N, panel, first && k == 0);
    }
  }
  if (depth == 0 && first) {
    for (int i = 0; i < rows; ++i) {
      for (int n = 0; n < TILE_N; n += LANES) LANE_STORE((lane_f)(0.0f), c + (long)i * ldc + n);
    }
  }
}
#define ENGINE_MULTIPLY(c, ldc, b, rows, depth, first) \
  { engine_multiply(c, ldc, pack, b, rows, depth, first, h_block); }
