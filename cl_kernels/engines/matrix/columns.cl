// SPDX-License-Identifier: Apache-2.0
// Reductions over the rows of a column of a turned tile, and the tile as an operand. Four lanes of
// a warp hold rows of a column, and so do those of the WARPS_M warps with the same columns.

// The value of the work-item whose number differs in this bit, of the same warp.
ALWAYS_INLINE float product_swap(const product_state* p, float value, int bit) {
#if MMA == 1
  return as_float(warp_swap(as_uint(value), bit));
#else
  local float* values = p->memory.values + 2 * PRODUCT_TOLD;
  barrier(CLK_LOCAL_MEM_FENCE);  // what was told before has been read
  values[get_local_id(0)] = value;
  barrier(CLK_LOCAL_MEM_FENCE);  // complete before it is read
  return values[get_local_id(0) ^ bit];
#endif
}

// Tells the warps with the same columns, and returns the words that they told, PRODUCT_TOLD /
// WARPS_M apart. Behind the barrier the words are complete, and all have read the global memory
// that an owner then writes. The next turn has other words, and behind its barrier these have been
// read.
ALWAYS_INLINE local const float* product_told(product_state* p, float value) {
  local float* values = p->memory.values + p->memory.turn * PRODUCT_TOLD;
  const int warp = (int)get_local_id(0) / MMA_SYNC_LANES;
  const int column = mma_sync_c_row(0, p->memory.place.lane);
  p->memory.turn ^= 1;
  if (mma_sync_c_column(0, p->memory.place.lane) == 0) values[warp * LANE_LINES + column] = value;
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  return values + warp % WARPS_N * LANE_LINES + column;
}
#define PRODUCT_LARGER 0
#define PRODUCT_ADDED 1
#define PRODUCT_LESS_INDEX 2  // the bits are an int
ALWAYS_INLINE float product_joined(int how, float a, float b) {
  if (how == PRODUCT_LARGER) return b > a ? b : a;
  if (how == PRODUCT_ADDED) return a + b;
  return as_float(min(as_int(a), as_int(b)));
}
// Every holder gets the same bits: lanes exchange, and warps' words are joined in order.
ALWAYS_INLINE float product_reduce(product_state* p, int how, float value) {
  value = product_joined(how, value, product_swap(p, value, 1));
  value = product_joined(how, value, product_swap(p, value, 2));
  local const float* told = product_told(p, value);
  value = told[0];
#pragma unroll
  for (int w = 1; w < WARPS_M; ++w) {
    value = product_joined(how, value, told[w * WARPS_N * LANE_LINES]);
  }
  return value;
}
ALWAYS_INLINE float product_max(product_state* p, float value) {
  return product_reduce(p, PRODUCT_LARGER, value);
}
ALWAYS_INLINE float product_sum(product_state* p, float value) {
  return product_reduce(p, PRODUCT_ADDED, value);
}
ALWAYS_INLINE int product_first(product_state* p, int index) {
  return as_int(product_reduce(p, PRODUCT_LESS_INDEX, as_float(index)));
}
ALWAYS_INLINE int product_owns(const product_state* p) {
  return p->memory.place.warp_m == 0 && mma_sync_c_column(0, p->memory.place.lane) == 0;
}
// Written by one, read by all for the next tile.
ALWAYS_INLINE void product_sync(product_state* p) {
  barrier(CLK_GLOBAL_MEM_FENCE);
  tile_find_anew(&p->memory.place);
}

// Rows come in pairs, which are words. (A tile begins at an even row of the operand.)
#define PRODUCT_STORES_OPERAND 1
ALWAYS_INLINE void product_store_operand(const product_state* p, const engine_tile* tile,
                                         global operand_word* to, long extent, int panel) {
  tile_place place;
  tile_find_anew(&place);
  TILE_VISIT for (int i = 0; i < tile_rows(1); i += 2) {
    const int row = tile_row(&place, 1, i);
    if (row >= p->now.rows) continue;
    global uint* words = (global uint*)(to + operand_index(extent, panel, p->now.m + row, 0));
    PRODUCT_FOR_COLUMNS(j) {
      words[tile_column(&place, 1, j)] =
          tile ? tile_pair(product_at(tile, i, j),
                           row + 1 < p->now.rows ? product_at(tile, i + 1, j) : 0.0f)
               : 0;
    }
  }
}
