// SPDX-License-Identifier: Apache-2.0
// A tile of C in the registers of a work-group: a warp has a part of TILE_M / WARPS_M rows and
// TILE_N / WARPS_N columns, as results of the instruction, MMA_SYNC_M x MMA_SYNC_N each. Tiles that
// an epilogue visits are turned: the instruction's rows are columns of C. A work-item then has few
// columns with many rows each, which four lanes of a warp share; and pairs of rows, which is how
// an operand is stored.
#ifndef TESSERA_MATRIX_TILE_CL
#define TESSERA_MATRIX_TILE_CL

#include "engines/matrix/fragment.h"
#if MMA == 1
#include "engines/warp.cl"
#endif

#define TILE_ITEMS (MMA_SYNC_LANES * WARPS_M * WARPS_N)
#define WARP_M (TILE_M / WARPS_M)
#define WARP_N (TILE_N / WARPS_N)
// Results that a warp has below each other, and beside each other, along the instruction's rows and
// columns.
ALWAYS_INLINE int tile_down(int turned) { return (turned ? WARP_N : WARP_M) / MMA_SYNC_M; }
ALWAYS_INLINE int tile_across(int turned) { return (turned ? WARP_M : WARP_N) / MMA_SYNC_N; }
// A lane has the elements of two rows and two columns of a result, so that a warp's lanes have
// LANE_LINES rows of it at a time.
#define LANE_DOWN 2
#define LANE_ACROSS 2
#define LANE_LINES (MMA_SYNC_M / LANE_DOWN)

// Sums of a product, in registers.
typedef struct {
  float sums[WARP_M * WARP_N / (MMA_SYNC_M * MMA_SYNC_N)][LANE_DOWN * LANE_ACROSS];
} tile_sums;
#if LONG_EPILOGUE
// The sums in local memory, where loops need not be unrolled.
typedef struct {
  local float* sums;  // [column][row][TILE_ITEMS], positions, from this work-item's first on
} engine_tile;
#else
typedef tile_sums engine_tile;
#endif

// A work-item's place: its lane, and the first row and column of its warp's part.
typedef struct {
  int lane, warp_m, warp_n;
} tile_place;
ALWAYS_INLINE void tile_find(tile_place* at, int item) {
  at->lane = item % MMA_SYNC_LANES;
  at->warp_m = item / MMA_SYNC_LANES / WARPS_N * WARP_M;
  at->warp_n = item / MMA_SYNC_LANES % WARPS_N * WARP_N;
}
ALWAYS_INLINE int tile_hidden(int number) {
#if MMA == 1
  number = warp_hidden(number);
#endif
  return number;
}
ALWAYS_INLINE void tile_find_anew(tile_place* at) { tile_find(at, tile_hidden(get_local_id(0))); }

// The lane's r-th row (a line) and s-th column in the instruction's orientation, from the warp's
// first on.
ALWAYS_INLINE int tile_line(const tile_place* at, int r) {
  return r / LANE_DOWN * MMA_SYNC_M + mma_sync_c_row(r % LANE_DOWN * LANE_ACROSS, at->lane);
}
ALWAYS_INLINE int tile_along(const tile_place* at, int s) {
  return s / LANE_ACROSS * MMA_SYNC_N + mma_sync_c_column(s % LANE_ACROSS, at->lane);
}
// Sums have the element of both in this result, at this place.
ALWAYS_INLINE int tile_result(int turned, int r, int s) {
  return r / LANE_DOWN * tile_across(turned) + s / LANE_ACROSS;
}
ALWAYS_INLINE int tile_element(int r, int s) {
  return r % LANE_DOWN * LANE_ACROSS + s % LANE_ACROSS;
}

// Positions of rows and columns of C.
ALWAYS_INLINE int tile_rows(int turned) {
  return turned ? LANE_ACROSS * tile_across(1) : LANE_DOWN * tile_down(0);
}
ALWAYS_INLINE int tile_columns(int turned) {
  return turned ? LANE_DOWN * tile_down(1) : LANE_ACROSS * tile_across(0);
}
ALWAYS_INLINE int tile_row(const tile_place* at, int turned, int i) {
  return at->warp_m + (turned ? tile_along(at, i) : tile_line(at, i));
}
ALWAYS_INLINE int tile_column(const tile_place* at, int turned, int j) {
  return at->warp_n + (turned ? tile_line(at, j) : tile_along(at, j));
}
ALWAYS_INLINE float tile_at(const tile_sums* tile, int turned, int i, int j) {
  const int r = turned ? j : i, s = turned ? i : j;
  return tile->sums[tile_result(turned, r, s)][tile_element(r, s)];
}
ALWAYS_INLINE void tile_put(tile_sums* tile, int turned, int i, int j, float value) {
  const int r = turned ? j : i, s = turned ? i : j;
  tile->sums[tile_result(turned, r, s)][tile_element(r, s)] = value;
}

// Registers have numbers: loops over positions are unrolled. (PoCL 3.1 miscompiles barriers in
// loops that it unrolls.)
#if MMA == 1
#define TILE_UNROLL _Pragma("unroll")
#else
#define TILE_UNROLL
#endif
#if LONG_EPILOGUE
#define TILE_VISIT _Pragma("unroll 1")
#else
#define TILE_VISIT TILE_UNROLL
#endif

// Two elements as a pair in a word, the first in its low half.
ALWAYS_INLINE uint tile_pair(float low, float high) {
#if MMA == 1
  return warp_pair(low, high);
#else
  return float_to_pair(low) | (uint)float_to_pair(high) << 16;
#endif
}

#endif
