// SPDX-License-Identifier: Apache-2.0
// The engine for NVIDIA's Hopper (wgmma, by inline PTX): products of bf16 with f32 sums that stay
// in registers, of operands that copies bring as they lie. Those who bring and those who multiply
// tell each other by two barriers of each stage: full, when a step has come; empty, when all have
// read it.
#include "engines/warp.cl"
#include "engines/wgmma/instructions.cl"

// Operands come by product_divide.
ALWAYS_INLINE void product_load(product_state* p) {}

// The last steps of a tile, whose places it takes in local memory: all stages.
#if LONG_EPILOGUE
#define PRODUCT_COVERED STAGES
#else
#define PRODUCT_COVERED 0
#endif
// Steps of a tile so many words deep. Those beyond its depth are zeros.
ALWAYS_INLINE int product_steps(int depth) {
  return depth == 0 ? 0 : max((2 * depth + PRODUCT_STEP - 1) / PRODUCT_STEP, PRODUCT_COVERED);
}

#include "engines/wgmma/bring.cl"     // as product
#include "engines/wgmma/multiply.cl"  // as product

ALWAYS_INLINE void product_divide(product_state* p) {
  const int item = (int)get_local_id(0);
  if (item == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      mbarrier_init(product_full(p, stage), 1);
      mbarrier_init(product_empty(p, stage), PRODUCT_WARPS);
    }
    mbarrier_publish();
  }
  barrier(CLK_LOCAL_MEM_FENCE);  // they are there before anybody waits for one
  if (item >= TILE_ITEMS) {
    registers_give();
    if (item / 32 == PRODUCT_WARPS) product_bring(p);
    item_end();
  }
  registers_take();
}

// Positions: a work-item has two columns, and of both two rows of every 8.
#define PRODUCT_COLUMNS_HELD 2
#define PRODUCT_ROWS_HELD (TILE_SUMS / PRODUCT_COLUMNS_HELD)
#define PRODUCT_FOR_COLUMNS(j) TILE_VISIT for (int j = 0; j < PRODUCT_COLUMNS_HELD; ++j)
#define PRODUCT_FOR_ROWS(i, rows) TILE_VISIT for (int i = 0; i < PRODUCT_ROWS_HELD; ++i)
ALWAYS_INLINE int product_position(int i, int j) { return i / 2 * 4 + j * 2 + i % 2; }
// Hidden each time: numbers of 64 rows that two columns have in common would stay in registers.
ALWAYS_INLINE int product_row(const product_state* p, int i) {
  return wgmma_column(product_position(i, 0), warp_hidden(p->memory.item));
}
ALWAYS_INLINE int product_ahead(int i) { return wgmma_column(product_position(i, 0), 0); }
ALWAYS_INLINE int product_column(const product_state* p, int j) {
  return p->memory.item / 128 * 64 + wgmma_row(product_position(0, j), p->memory.item % 128);
}
ALWAYS_INLINE int product_row_within(const product_state* p, int i, int rows) {
  return min(product_row(p, i), rows - 1);
}
ALWAYS_INLINE float product_at(const engine_tile* tile, int i, int j) {
  return tile_at(tile, product_position(i, j));
}
ALWAYS_INLINE void product_put(engine_tile* tile, int i, int j, float value) {
  tile_put(tile, product_position(i, j), value);
}

// The panel is known to work-items that bring operands.
ALWAYS_INLINE void product_form(product_state* p, float* sums) {
  const int steps = product_steps(p->now.depth);
#pragma unroll
  for (int i = 0; i < TILE_SUMS; ++i) sums[i] = 0.0f;
  // One lane of each warp tells that it has read a step.
  const int releases = get_local_id(0) % 32 == 0 ? steps - PRODUCT_COVERED : 0;
  if (steps > 0) product_sum_steps(p, sums, steps, releases);
  p->memory.item = warp_hidden((int)get_local_id(0));
}

#if LONG_EPILOGUE
// Waits for all that multiply.
ALWAYS_INLINE void product_warps_meet(void) {
  __asm__ volatile("bar.sync 1, %0;" : : "n"(TILE_ITEMS) : "memory");
}
ALWAYS_INLINE void product_multiply(product_state* p, engine_tile* tile, int panel) {
  if (p->memory.is_tile) {
    // The tile has been visited. Steps come to its place, all of which is free once each warp says
    // so.
    copies_after_stores();
    warp_sync();
    if (get_local_id(0) % 32 == 0) {
      for (int stage = 0; stage < STAGES; ++stage) mbarrier_arrive(product_empty(p, stage));
    }
  }
  float sums[TILE_SUMS];
  product_form(p, sums);
  product_warps_meet();  // all have read the last steps
  p->memory.is_tile = p->now.depth > 0;
  tile->sums = (local float*)p->memory.steps + get_local_id(0);
#pragma unroll
  for (int i = 0; i < TILE_SUMS; ++i) tile_put(tile, i, sums[i]);
}
#else
ALWAYS_INLINE void product_multiply(product_state* p, engine_tile* tile, int panel) {
  product_form(p, tile->sums);
}
#endif

// Straight into memory, for sums that outlive the group. No work-item reads another's elements, so
// nothing has to be waited for.
ALWAYS_INLINE void product_accumulate(product_state* p, global float* to, int panel, int first) {
  float sums[TILE_SUMS];
  product_form(p, sums);
  const int row = product_row(p, 0);
  to += row * TILE_N;
  PRODUCT_FOR_ROWS(i, p->now.rows) {
    if (row + product_ahead(i) >= p->now.rows) continue;
    PRODUCT_FOR_COLUMNS(j) {
      global float* at = to + product_ahead(i) * TILE_N + product_column(p, j);
      const float sum = sums[product_position(i, j)];
      *at = first ? sum : *at + sum;
    }
  }
}

#if PRODUCT_USE == USE_VISIT
#include "engines/wgmma/columns.cl"  // as product
#elif PRODUCT_USE == USE_STORE
#include "engines/wgmma/store.cl"  // as product
#endif
