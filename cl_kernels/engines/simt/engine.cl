// SPDX-License-Identifier: Apache-2.0
// The portable engine: a work-group of SIMT_ITEMS work-items computes a TILE_M x TILE_N tile through
// local memory, each work-item ITEM_M x ITEM_N elements of it in registers. OpenCL C 1.2 core only;
// 64 x 64 with panels 16 deep takes 16 KiB + 2 * 4.25 KiB of local memory, below the 32 KiB that
// every device has.
#if LANES != 1
#error "the simt engine has one token per work-item"
#endif
#include "common/lanes.cl"

#define C_SPACE local
#define SIMT_COLUMNS (TILE_N / ITEM_N)
#define SIMT_ROWS (TILE_M / ITEM_M)
#define SIMT_ITEMS (SIMT_COLUMNS * SIMT_ROWS)
// One spare element a row: neighbours that store down a column then hit different banks.
#define SIMT_LD_A (TILE_M + 1)

// All of H in one step: a tile lives in local memory for one panel of tokens only.
#define ENGINE_K_STEP(depth) ((long)(depth) + 1)
#define ENGINE_STRIP TILE_M
// SIMT_ITEMS is at least TILE_N (host/engines/simt.cpp), so that each token has a work-item.
#define FOR_LANE_GROUPS(column) \
  for (int column = (int)get_local_id(0); column < TILE_N; column += SIMT_ITEMS)

// Local arrays may only be declared in a kernel.
#define ENGINE_LOCALS                                    \
  local float tile_c[TILE_M * TILE_N];                   \
  ENGINE_PANELS
#define ENGINE_PANELS                                    \
  local float panel_a[SIMT_DEPTH * SIMT_LD_A];           \
  local float panel_b[SIMT_DEPTH * TILE_N];
// A is read panel by panel inside the multiplication.
#define ENGINE_LOAD_ALL
#define ENGINE_TURN

// The same for every work-item of the group; K_KEPT_STEP is a multiple of SIMT_DEPTH.
#ifdef K_KEPT
#define SIMT_SKIP(k) if (!(K_KEPT(k))) continue;
#else
#define SIMT_SKIP(k)
#endif

// acc += A * b over all of `depth`; every work-item of the group takes part.
#define SIMT_ACCUMULATE(b, rows, depth)                                                        \
  const int item = (int)get_local_id(0);                                                       \
  const int item_m = item / SIMT_COLUMNS;                                                      \
  const int item_n = item % SIMT_COLUMNS;                                                      \
  float acc[ITEM_M][ITEM_N];                                                                   \
  for (int m = 0; m < ITEM_M; ++m)                                                             \
    for (int n = 0; n < ITEM_N; ++n) acc[m][n] = 0.0f;                                         \
  for (int k0 = 0; k0 < (depth); k0 += SIMT_DEPTH) {                                           \
    SIMT_SKIP(k0)                                                                              \
    /* The panels, and the tile that an epilogue reads, are free to be overwritten. */         \
    barrier(CLK_LOCAL_MEM_FENCE);                                                              \
    for (int e = item; e < SIMT_DEPTH * TILE_M; e += SIMT_ITEMS) {                             \
      SIMT_A_INDEX(e)                                                                          \
      panel_a[k * SIMT_LD_A + m] =                                                             \
          m < (rows) && k0 + k < (depth) ? A_AT(now, m, k0 + k) : 0.0f;                        \
    }                                                                                          \
    for (int e = item; e < SIMT_DEPTH * TILE_N; e += SIMT_ITEMS) {                             \
      panel_b[e] = k0 + e / TILE_N < (depth) ? (b)[(long)k0 * TILE_N + e] : 0.0f;              \
    }                                                                                          \
    /* Both panels are complete before anybody reads them. */                                  \
    barrier(CLK_LOCAL_MEM_FENCE);                                                              \
    for (int k = 0; k < SIMT_DEPTH; ++k) {                                                     \
      float a_column[ITEM_M];                                                                  \
      float b_row[ITEM_N];                                                                     \
      for (int m = 0; m < ITEM_M; ++m)                                                         \
        a_column[m] = panel_a[k * SIMT_LD_A + item_m + m * SIMT_ROWS];                         \
      for (int n = 0; n < ITEM_N; ++n)                                                         \
        b_row[n] = panel_b[k * TILE_N + item_n + n * SIMT_COLUMNS];                            \
      for (int m = 0; m < ITEM_M; ++m)                                                         \
        for (int n = 0; n < ITEM_N; ++n) acc[m][n] = fma(a_column[m], b_row[n], acc[m][n]);    \
    }                                                                                          \
  }

// Neighbouring work-items read along whichever index is contiguous in memory.
#if A_CONTIGUOUS_M
#define SIMT_A_INDEX(e)         \
  const int m = (e) % TILE_M;   \
  const int k = (e) / TILE_M;
#else
#define SIMT_A_INDEX(e)           \
  const int k = (e) % SIMT_DEPTH; \
  const int m = (e) / SIMT_DEPTH;
#endif

// Into the local tile, for an epilogue; complete when this returns.
#define ENGINE_MULTIPLY(c, ldc, b, rows, depth, first, panel, panels)                          \
  {                                                                                            \
    SIMT_ACCUMULATE(b, rows, depth)                                                            \
    /* With depth 0 the loop above has no barrier; an earlier epilogue may still read c. */    \
    barrier(CLK_LOCAL_MEM_FENCE);                                                              \
    for (int m = 0; m < ITEM_M; ++m)                                                           \
      for (int n = 0; n < ITEM_N; ++n)                                                         \
        (c)[(item_m + m * SIMT_ROWS) * (ldc) + item_n + n * SIMT_COLUMNS] = acc[m][n];         \
    /* The epilogue reads elements that other work-items wrote. */                             \
    barrier(CLK_LOCAL_MEM_FENCE);                                                              \
  }

// Straight into global memory, for sums that outlive the group. No work-item reads another's
// elements, so nothing has to be waited for.
#define ENGINE_MULTIPLY_GLOBAL(c, ldc, b, rows, depth, first, panel, panels)                   \
  {                                                                                            \
    SIMT_ACCUMULATE(b, rows, depth)                                                            \
    for (int m = 0; m < ITEM_M; ++m) {                                                         \
      const int r = item_m + m * SIMT_ROWS;                                                    \
      if (r >= (rows)) continue;                                                               \
      for (int n = 0; n < ITEM_N; ++n) {                                                       \
        global float* at = (c) + (long)r * (ldc) + item_n + n * SIMT_COLUMNS;                  \
        *at = (first) ? acc[m][n] : *at + acc[m][n];                                           \
      }                                                                                        \
    }                                                                                          \
  }
