// SPDX-License-Identifier: Apache-2.0
// Reductions over the rows of a column of a turned tile, which four neighbours of a warp share, and
// the tile as an operand.
ALWAYS_INLINE float product_max(const product_state* p, float value) {
  for (int bit = 1; bit < 4; bit *= 2) {
    const float other = as_float(warp_swap(as_uint(value), bit));
    value = other > value ? other : value;
  }
  return value;
}
ALWAYS_INLINE float product_sum(const product_state* p, float value) {
  for (int bit = 1; bit < 4; bit *= 2) value += as_float(warp_swap(as_uint(value), bit));
  return value;
}
ALWAYS_INLINE int product_first(const product_state* p, int index) {
  for (int bit = 1; bit < 4; bit *= 2) index = min(index, (int)warp_swap((uint)index, bit));
  return index;
}
ALWAYS_INLINE int product_owns(const product_state* p) { return get_local_id(0) % 4 == 0; }
ALWAYS_INLINE void product_sync(const product_state* p) { warp_sync(); }

// Runs of 8 rows go to a token's line of a block, 16 bytes by each work-item. A block that has a
// row of the tile is written whole.
#define PRODUCT_STORES_OPERAND 1
ALWAYS_INLINE void product_store_operand(const product_state* p, engine_tile* tile,
                                         global operand_word* to, long extent, int panel) {
  const int lane = p->memory.item % 4;
  if (tile && p->now.rows < TILE_M) {
    const int left = p->now.rows - product_row(p, 0);
    PRODUCT_FOR_ELEMENTS(i, p->now.rows, j) {
      if (product_ahead(i) >= left) product_put(tile, i, j, 0.0f);
    }
  }
  PRODUCT_FOR_COLUMNS(j) {
    const int column = product_column(p, j);
    TILE_VISIT for (int run = 0; run < PRODUCT_ROWS_HELD / 2; run += 4) {
      uint words[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; tile && i < 4; ++i) {
        words[i] =
            warp_pair(product_at(tile, 2 * (run + i), j), product_at(tile, 2 * (run + i) + 1, j));
      }
      if (tile) warp_turn(words, lane);
      const int row = 8 * (run + lane);
      if (row / OPERAND_BLOCK * OPERAND_BLOCK >= p->now.rows) continue;
      *(global uint4*)(to + operand_index(extent, panel, p->now.m + row, column)) =
          (uint4)(words[0], words[1], words[2], words[3]);
    }
  }
}
