// SPDX-License-Identifier: Apache-2.0
// Geometry of the engine for matrix units: a work-group of WARPS_M x WARPS_N warps computes a
// TILE_M x TILE_N tile from STAGES steps of DEPTH words of both operands in local memory. The tile
// itself stays in registers (tile.cl).

#define PRODUCT_ITEMS TILE_ITEMS
#define PRODUCT_KERNEL __attribute__((reqd_work_group_size(PRODUCT_ITEMS, 1, 1)))
#define PRODUCT_STRIP TILE_M
#define PRODUCT_WHOLE_K 1
// TileEngine::parts has a strip in each part, TileEngine::groups a group for each.
#define PRODUCT_ONE_TILE (PRODUCT_USE == USE_STORE)
#define PRODUCT_WORD_ELEMENTS 2

// 1: the instruction's rows are columns of C; else along n, where a matrix is written along it.
#define PRODUCT_TURNED \
  (PRODUCT_USE == USE_VISIT || (PRODUCT_USE == USE_STORE && PRODUCT_OUT_LAYOUT == ALONG_FIRST))

// A step of A lies as it does in global memory (operand_a.cl): rows along k; rows along m for each
// k where its m are contiguous (PRODUCT_A_BY_M); of a stored A rows along k for each pair of m. The
// spare words at the end of a row put what a warp reads together into different banks.
#define PRODUCT_A_BY_M (PRODUCT_A_LAYOUT == ALONG_FIRST && !PRODUCT_A_STORED)
#if PRODUCT_A_STORED
#define PRODUCT_ROWS_A (TILE_M / 2)
#define PRODUCT_WIDTH_A (2 * DEPTH)
#define PRODUCT_LD_A (PRODUCT_WIDTH_A + 8)
#elif PRODUCT_A_BY_M
#define PRODUCT_ROWS_A (2 * DEPTH)
#define PRODUCT_WIDTH_A (TILE_M / 2)
#define PRODUCT_LD_A (PRODUCT_WIDTH_A + 4)
#else
#define PRODUCT_ROWS_A TILE_M
#define PRODUCT_WIDTH_A DEPTH
#define PRODUCT_LD_A (PRODUCT_WIDTH_A + 4)
#endif
#define PRODUCT_WORDS_A (PRODUCT_ROWS_A * PRODUCT_LD_A)
// A step of B has rows of words for each pair of k, which is how the instruction takes it.
#define PRODUCT_LD_B (TILE_N + 8)
#define PRODUCT_STAGE (PRODUCT_WORDS_A + DEPTH * PRODUCT_LD_B)

// Another tile as operand B is all there, behind one step of A.
#if PRODUCT_B_TILE
#define PRODUCT_SHARED (PRODUCT_WORDS_A + TILE_M / 2 * PRODUCT_LD_B)
#else
#define PRODUCT_SHARED (STAGES * PRODUCT_STAGE)
#endif
#if LONG_EPILOGUE && PRODUCT_SHARED < TILE_M * TILE_N
#error "the steps have no room for the tile"
#endif
// Warps with rows of the same columns tell each other a word for each column that their lanes have
// at a time, in two turns. Without the instruction lanes meet there, too.
#define PRODUCT_TOLD (WARPS_M * WARPS_N * LANE_LINES)
#define PRODUCT_VALUES \
  (PRODUCT_USE == USE_VISIT ? 2 * PRODUCT_TOLD + (MMA == 2) * PRODUCT_ITEMS : 4)

typedef struct {
  local uint* shared;
  local float* values;  // [2][WARPS_M][WARPS_N][LANE_LINES], [PRODUCT_ITEMS]
  int turn;             // of the values
  tile_place place;     // since the last product
} product_memory;
// Four words each, so that rows begin where 16 bytes may be read.
#define PRODUCT_LOCALS(memory)                          \
  local uint4 product_local_shared[PRODUCT_SHARED / 4]; \
  local float product_local_values[PRODUCT_VALUES];     \
  const product_memory memory = {(local uint*)product_local_shared, product_local_values, 0}

#define PRODUCT_BAND BAND
#include "engines/bands.cl"  // as product
