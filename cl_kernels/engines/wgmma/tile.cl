// SPDX-License-Identifier: Apache-2.0
// A tile of C in the registers of the work-items that multiply: each has TILE_SUMS of it.
#ifndef TESSERA_WGMMA_TILE_CL
#define TESSERA_WGMMA_TILE_CL

#define TILE_SUMS 128
#define TILE_ITEMS (TILE_M * TILE_N / TILE_SUMS)  // that multiply: two warpgroups
#if LONG_EPILOGUE
// In local memory, where loops need not be unrolled.
typedef struct {
  local float* sums;  // [TILE_SUMS][TILE_ITEMS], from this work-item's first on
} engine_tile;
#define TILE_VISIT _Pragma("unroll 1")
#else
typedef struct {
  float sums[TILE_SUMS];
} engine_tile;
#define TILE_VISIT _Pragma("unroll")
#endif

// Sum `at` of the tile.
ALWAYS_INLINE float tile_at(const engine_tile* tile, int at) {
#if LONG_EPILOGUE
  return tile->sums[at * TILE_ITEMS];
#else
  return tile->sums[at];
#endif
}
ALWAYS_INLINE void tile_put(engine_tile* tile, int at, float value) {
#if LONG_EPILOGUE
  tile->sums[at * TILE_ITEMS] = value;
#else
  tile->sums[at] = value;
#endif
}

#endif
