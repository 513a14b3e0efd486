// SPDX-License-Identifier: Apache-2.0
// Geometry of the simt engine: a work-group of PRODUCT_ITEMS work-items computes a TILE_M x TILE_N
// tile, each of them ITEM_M x ITEM_N elements of it in registers. 64 x 64 with panels 16 deep takes
// 16 KiB + 2 * 4.25 KiB of local memory, below the 32 KiB that every device has.

#define PRODUCT_COLUMNS (TILE_N / ITEM_N)
#define PRODUCT_ROWS (TILE_M / ITEM_M)
#define PRODUCT_ITEMS (PRODUCT_COLUMNS * PRODUCT_ROWS)
// Four spare elements a row: neighbours that store down a column then hit different banks, and four
// elements are still read at once.
#define PRODUCT_LD_A (TILE_M + 4)

#define PRODUCT_KERNEL __attribute__((reqd_work_group_size(PRODUCT_ITEMS, 1, 1)))
#define PRODUCT_STRIP TILE_M
#define PRODUCT_WHOLE_K 1

// A tile lives in local memory, for one panel of columns only: the host gives all of k in one step.
// Sums that are accumulated in memory need no tile, and a B that is a tile no panel.
#define PRODUCT_TILE_WORDS (PRODUCT_USE == USE_ACCUMULATE ? 1 : TILE_M * TILE_N)
#define PRODUCT_FOURS_B (PRODUCT_B_TILE ? 1 : SIMT_DEPTH * TILE_N / 4)
typedef struct {
  local float* tile;  // [m][TILE_N]
  local float4* a;    // [SIMT_DEPTH][PRODUCT_LD_A / 4]
  local float4* b;    // [SIMT_DEPTH][TILE_N / 4]
} product_memory;
#define PRODUCT_LOCALS(memory)                                 \
  local float product_local_tile[PRODUCT_TILE_WORDS];          \
  local float4 product_local_a[SIMT_DEPTH * PRODUCT_LD_A / 4]; \
  local float4 product_local_b[PRODUCT_FOURS_B];               \
  const product_memory memory = {product_local_tile, product_local_a, product_local_b}
