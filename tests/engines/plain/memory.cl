// SPDX-License-Identifier: Apache-2.0
// Geometry of the plain engine: a work-group has a work-item for each element of a TILE_M x TILE_N
// tile. Local memory is for what work-items with rows of the same column tell each other.

#define PRODUCT_ITEMS (TILE_M * TILE_N)
#define PRODUCT_KERNEL __attribute__((reqd_work_group_size(PRODUCT_ITEMS, 1, 1)))
#define PRODUCT_STRIP TILE_M
#define PRODUCT_WHOLE_K 1
typedef struct {
  local float* values;  // [TILE_M][TILE_N]
} product_memory;
#define PRODUCT_LOCALS(memory)                     \
  local float product_local_values[PRODUCT_ITEMS]; \
  const product_memory memory = {product_local_values}
