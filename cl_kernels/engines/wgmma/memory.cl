// SPDX-License-Identifier: Apache-2.0
// Geometry of the engine for NVIDIA's Hopper: two warpgroups of a work-group multiply, a warp of a
// third brings STAGES steps of both operands ahead of them, as boxes of tensor maps. A tile of C is
// TILE_M x TILE_N, TILE_M x 128 bytes and TILE_N x 128 bytes are a step.

#define PRODUCT_ITEMS (TILE_ITEMS + 128)
#define PRODUCT_KERNEL __attribute__((reqd_work_group_size(PRODUCT_ITEMS, 1, 1)))
#define PRODUCT_STRIP TILE_M
#define PRODUCT_WHOLE_K 1
#define PRODUCT_DIVIDES 1
#define PRODUCT_WORD_ELEMENTS 2
#define PRODUCT_PANEL_WORDS 4  // a row of an operand begins at a multiple of 16 bytes

#if PRODUCT_KEPT || PRODUCT_B_TILE
#error "this engine leaves out no steps and multiplies no tile of another product"
#endif

// 1: k is contiguous in the memory of an operand; 0: m or n is.
#define PRODUCT_A_BY_K (PRODUCT_A_LAYOUT == ALONG_SECOND && !PRODUCT_A_STORED)
#define PRODUCT_B_BY_K (!PRODUCT_B_COLUMNS)

// Panels whose groups take turns: prototypes of these products went fastest so on an H200. The 132
// groups that run at once share about 2000 rows of each operand then.
#if PRODUCT_USE == USE_VISIT
#define PRODUCT_BAND 16
#elif PRODUCT_USE == USE_ACCUMULATE
#define PRODUCT_BAND 4
#else
#define PRODUCT_BAND 32
#endif
#include "engines/bands.cl"  // as product

#define PRODUCT_STEP 64                          // of k
#define PRODUCT_LINE (2 * PRODUCT_STEP)          // bytes of a box's row
#define PRODUCT_BYTES_A (TILE_M * PRODUCT_LINE)  // of a step
#define PRODUCT_STAGE (PRODUCT_BYTES_A + TILE_N * PRODUCT_LINE)
#define PRODUCT_EDGE 1024  // a step begins at a multiple: the swizzle's pattern is as long
#define PRODUCT_WARPS (TILE_ITEMS / 32)

typedef struct {
  local uchar* steps;  // [stage][A, B][row][PRODUCT_LINE]
  uint barriers;       // [full, empty][stage]
  uint stage, parity;  // of the next step
  int item;            // this work-item
  int is_tile;         // 1: a tile is in the place of the steps
} product_memory;
#define PRODUCT_LOCALS(memory)                                                               \
  local uint4 product_local_steps[(STAGES * PRODUCT_STAGE + PRODUCT_EDGE + MAP_BYTES) / 16]; \
  local ulong product_local_barriers[2 * STAGES];                                            \
  const product_memory memory = {product_whole_lines((local uchar*)product_local_steps),     \
                                 (uint)(size_t)product_local_barriers,                       \
                                 0,                                                          \
                                 0,                                                          \
                                 0,                                                          \
                                 0}
// The first byte from there on at which a step may begin.
ALWAYS_INLINE local uchar* product_whole_lines(local uchar* from) {
  return from + (-(uint)(size_t)from & (PRODUCT_EDGE - 1));
}
