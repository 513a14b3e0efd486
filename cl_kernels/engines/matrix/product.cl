// SPDX-License-Identifier: Apache-2.0
// The engine for matrix units that a warp of 32 drives together (NVIDIA's mma.sync, by inline PTX):
// products of bf16 or f16 (PAIR_TYPE) with f32 sums, which stay in registers (tile.cl). Of the
// STAGES steps in local memory one is multiplied while the others come. MMA 1 is the instruction;
// MMA 2 has every work-item form the elements that the instruction would give it, for devices
// without one.

#define PRODUCT_FOR_COLUMNS(j) TILE_VISIT for (int j = 0; j < tile_columns(PRODUCT_TURNED); ++j)
#define PRODUCT_FOR_ROWS(i, rows) TILE_VISIT for (int i = 0; i < tile_rows(PRODUCT_TURNED); ++i)
ALWAYS_INLINE int product_row(const product_state* p, int i) {
  return tile_row(&p->memory.place, PRODUCT_TURNED, i);
}
ALWAYS_INLINE int product_ahead(int i) {
  const tile_place first = {0, 0, 0};
  return tile_row(&first, PRODUCT_TURNED, i);
}
ALWAYS_INLINE int product_row_within(const product_state* p, int i, int rows) {
  return min(product_row(p, i), rows - 1);
}
ALWAYS_INLINE int product_column(const product_state* p, int j) {
  return tile_column(&p->memory.place, PRODUCT_TURNED, j);
}
#if LONG_EPILOGUE
ALWAYS_INLINE local float* product_place_of(const engine_tile* tile, int i, int j) {
  return tile->sums + (j * tile_rows(PRODUCT_TURNED) + i) * TILE_ITEMS;
}
ALWAYS_INLINE float product_at(const engine_tile* tile, int i, int j) {
  return *product_place_of(tile, i, j);
}
ALWAYS_INLINE void product_put(engine_tile* tile, int i, int j, float value) {
  *product_place_of(tile, i, j) = value;
}
#else
ALWAYS_INLINE float product_at(const engine_tile* tile, int i, int j) {
  return tile_at(tile, PRODUCT_TURNED, i, j);
}
ALWAYS_INLINE void product_put(engine_tile* tile, int i, int j, float value) {
  tile_put(tile, PRODUCT_TURNED, i, j, value);
}
#endif

// Operands come in step by step inside the multiplication.
ALWAYS_INLINE void product_load(product_state* p) {}

// product_copy brings `count` words of 4, and 0 for the rest, to local memory, where all work-items
// find them after product_arrived and a barrier. Nothing is read where count is 0. product_sent
// ends what product_arrived_but_last, which waits for all but the last STAGES - 2 such, counts as
// one.
#if MMA == 1
ALWAYS_INLINE void product_copy(local uint* to, global const operand_word* from, int count) {
  __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                   :
                   : "l"(to), "l"(from), "r"(4 * count)
                   : "memory");
}
ALWAYS_INLINE void product_sent(void) { __asm__ volatile("cp.async.commit_group;" : : : "memory"); }
ALWAYS_INLINE void product_arrived_but_last(void) {
  __asm__ volatile("cp.async.wait_group %0;" : : "n"(STAGES - 2) : "memory");
}
ALWAYS_INLINE void product_arrived(void) {
  __asm__ volatile("cp.async.wait_group 0;" : : : "memory");
}
#else
ALWAYS_INLINE void product_copy(local uint* to, global const operand_word* from, int count) {
  for (int i = 0; i < 4; ++i) to[i] = i < count ? from[i].bits : 0;
}
ALWAYS_INLINE void product_sent(void) {}
ALWAYS_INLINE void product_arrived_but_last(void) {}
ALWAYS_INLINE void product_arrived(void) {}
#endif

// A step is multiplied in blocks of 8 words, and a work-item brings its share of another in as many
// parts, so that neither waits for the other. The quads of words that it brings lie below each
// other, PRODUCT_DOWN_A or _B rows apart: addresses that differ by numbers alone take few
// registers.
#define PRODUCT_PARTS (DEPTH / 8)
ALWAYS_INLINE int product_share(int all, int part) { return all * part / PRODUCT_PARTS; }

#include "engines/matrix/operand_a.cl"  // as product

#define PRODUCT_QUADS_B (TILE_N * DEPTH / 4 / PRODUCT_ITEMS)
#define PRODUCT_DOWN_B (PRODUCT_ITEMS / (TILE_N / 4))
#if PRODUCT_ITEMS % (TILE_N / 4) != 0
#error "a row of operand B is not a part of what a work-group brings in at once"
#endif
#if PRODUCT_B_STORED
#define PRODUCT_STEP_B STORED_ROW(2)
#else
#define PRODUCT_STEP_B 1
#endif
ALWAYS_INLINE void product_bring_b(local uint* to, const matrix_b* b, long panel, long k, int depth,
                                   int item, int part) {
  const int row = item / (TILE_N / 4), n = item % (TILE_N / 4) * 4;
  local uint* here = to + row * PRODUCT_LD_B + n;
  global const operand_word* from =
      b->base + (panel * b->extent + (k + row) * PRODUCT_STEP_B) * TILE_N + n;
#pragma unroll
  for (int i = product_share(PRODUCT_QUADS_B, part); i < product_share(PRODUCT_QUADS_B, part + 1);
       ++i) {
    const int down = i * PRODUCT_DOWN_B;
    product_copy(here + down * PRODUCT_LD_B, from + down * PRODUCT_STEP_B * TILE_N,
                 row + down < depth ? 4 : 0);
  }
}

// A block of both operands that a warp multiplies: 16 of k from its rows of A, in the instruction's
// form of 16 rows, and from its columns of B, 8 each. Both forms consist of the same quarters, 8
// rows or columns by 8 of k, so that either operand can be the instruction's first.
#if MMA == 1
ALWAYS_INLINE void product_instruction(float* sums, uint a0, uint a1, uint a2, uint a3, uint b0,
                                       uint b1) {
  __asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32." WARP_PAIR "." WARP_PAIR
                   ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
typedef struct {
  uint a[WARP_M / 16][4], b[WARP_N / 8][2];
} product_block;
ALWAYS_INLINE void product_take(product_block* block, const tile_place* place,
                                local const uint* step_a, local const uint* step_b, int k) {
  const int lane = place->lane;
  local const uint* b_at = step_b + (8 * k + mma_sync_b_row(0, lane) / 2) * PRODUCT_LD_B +
                           place->warp_n + mma_sync_b_column(0, lane);
  local const uint* a_at = product_blocks_a(step_a, place->warp_m, k, lane);
#pragma unroll
  for (int m = 0; m < WARP_M / 16; ++m) {
    product_block_a(block->a[m], a_at + m * PRODUCT_NEXT_A, lane);
  }
#pragma unroll
  for (int n = 0; n < WARP_N / 8; ++n) {
    block->b[n][0] = b_at[8 * n];
    block->b[n][1] = b_at[4 * PRODUCT_LD_B + 8 * n];
  }
}
ALWAYS_INLINE void product_multiply_block(tile_sums* tile, const product_block* block) {
#pragma unroll
  for (int r = 0; r < tile_down(PRODUCT_TURNED); ++r) {
#pragma unroll
    for (int s = 0; s < tile_across(PRODUCT_TURNED); ++s) {
      float* sums = tile->sums[r * tile_across(PRODUCT_TURNED) + s];
#if PRODUCT_TURNED
      const uint(*columns)[2] = block->b + 2 * r;
      const uint* rows = block->a[s / 2] + s % 2 * 2;
      product_instruction(sums, columns[0][0], columns[1][0], columns[0][1], columns[1][1], rows[0],
                          rows[1]);
#else
      const uint* rows = block->a[r];
      product_instruction(sums, rows[0], rows[1], rows[2], rows[3], block->b[s][0], block->b[s][1]);
#endif
    }
  }
}
#else
typedef struct {
  const tile_place* place;
  local const uint *step_a, *step_b;
  int k;
} product_block;
ALWAYS_INLINE void product_take(product_block* block, const tile_place* place,
                                local const uint* step_a, local const uint* step_b, int k) {
  block->place = place;
  block->step_a = step_a;
  block->step_b = step_b;
  block->k = k;
}
ALWAYS_INLINE void product_multiply_block(tile_sums* tile, const product_block* block) {
  for (int i = 0; i < tile_rows(PRODUCT_TURNED); ++i) {
    for (int j = 0; j < tile_columns(PRODUCT_TURNED); ++j) {
      const int m = tile_row(block->place, PRODUCT_TURNED, i);
      const int n = tile_column(block->place, PRODUCT_TURNED, j);
      float sum = tile_at(tile, PRODUCT_TURNED, i, j);
      for (int k = 16 * block->k; k < 16 * (block->k + 1); ++k) {
        const float a = pair_to_float((ushort)product_element_a(block->step_a, m, k));
        const uint b = block->step_b[k / 2 * PRODUCT_LD_B + n];
        sum = fma(a, pair_to_float((ushort)(k % 2 ? b >> 16 : b)), sum);
      }
      tile_put(tile, PRODUCT_TURNED, i, j, sum);
    }
  }
}
#endif
ALWAYS_INLINE void product_clear_sums(tile_sums* tile) {
  TILE_UNROLL for (int i = 0; i < tile_rows(PRODUCT_TURNED); ++i) {
    TILE_UNROLL for (int j = 0; j < tile_columns(PRODUCT_TURNED); ++j) {
      tile_put(tile, PRODUCT_TURNED, i, j, 0.0f);
    }
  }
}

ALWAYS_INLINE local uint* product_stage(const product_state* p, int stage) {
  return p->memory.shared + stage * PRODUCT_STAGE;
}

// The first word of k from `k` on whose step is not left out. The same for every work-item of the
// group; PRODUCT_KEPT_STEP is a multiple of DEPTH.
ALWAYS_INLINE int product_skip(const product_state* p, int panel, int k) {
#if PRODUCT_KEPT
  panel = tile_hidden(panel);
  while (k < p->now.depth &&
         !product_keeps(p, &p->now, panel, k / PRODUCT_KEPT_STEP * PRODUCT_KEPT_STEP)) {
    k += DEPTH;
  }
#endif
  return k;
}

ALWAYS_INLINE void product_shift(const product_state* p, int panel, int* steps) {
#pragma unroll
  for (int i = 0; i + 1 < STAGES; ++i) steps[i] = steps[i + 1];
  steps[STAGES - 1] = product_skip(p, panel, steps[STAGES - 1] + DEPTH);
}

// Brings a part of the step from word k on into a stage, if there is one.
ALWAYS_INLINE void product_bring(const product_state* p, int panel, int k, int stage, int item,
                                 int whole, int part) {
  if (k >= p->now.depth) return;
  local uint* to = product_stage(p, stage);
  product_bring_a(to, &p->a, &p->now, k, item, whole, part);
  product_bring_b(to + PRODUCT_WORDS_A, &p->b, panel, p->now.k + k, p->now.depth - k, item, part);
}

// With an odd k the high half of a stored operand's last word is undefined; it is cleared, since 0
// times a NaN is one.
ALWAYS_INLINE void product_clear_half(const product_state* p, local uint* step, int k, int item) {
#if PRODUCT_B_STORED
  const int odd = p->a.k_count - 1 - 2 * ((int)p->now.k + k);
  if (p->a.k_count % 2 == 1 && odd < 2 * DEPTH) {
    for (int n = item; n < TILE_N; n += PRODUCT_ITEMS) {
      step[PRODUCT_WORDS_A + odd / 2 * PRODUCT_LD_B + n] &= 0xffffu;
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // before it is multiplied
  }
#endif
}

// sums = A * B over all of the tile's depth; every work-item of the group takes part.
ALWAYS_INLINE void product_form(product_state* p, tile_sums* sums, int panel) {
  const int item = (int)get_local_id(0);
  const int whole = product_a_is_whole(&p->a, &p->now);
  tile_place place;
  tile_find(&place, item);
  // The first words of the steps that are there or on their way, then of the next one to bring.
  int steps[STAGES], at = 0;
  steps[STAGES - 1] = product_skip(p, panel, 0);
  // The steps are free to be overwritten.
  barrier(CLK_LOCAL_MEM_FENCE);
// Unrolled, its addresses would be kept in registers throughout.
#pragma unroll 1
  for (int stage = 0; stage < STAGES - 1; ++stage) {
#pragma unroll
    for (int part = 0; part < PRODUCT_PARTS; ++part) {
      product_bring(p, panel, steps[STAGES - 1], stage, item, whole, part);
    }
    product_shift(p, panel, steps);
    product_sent();
  }
  product_clear_sums(sums);
  while (steps[0] < p->now.depth) {
    product_arrived_but_last();
    // This step is complete, and all have read the one before it, whose place the next takes.
    barrier(CLK_LOCAL_MEM_FENCE);
    product_clear_half(p, product_stage(p, at), steps[0], item);
    const int free = at == 0 ? STAGES - 1 : at - 1;
#pragma unroll
    for (int part = 0; part < PRODUCT_PARTS; ++part) {
      local const uint* step = product_stage(p, at);
      product_block block;
      product_take(&block, &place, step, step + PRODUCT_WORDS_A, part);
      product_bring(p, panel, steps[STAGES - 1], free, item, whole, part);
      product_multiply_block(sums, &block);
    }
    product_shift(p, panel, steps);
    product_sent();
    at = at + 1 == STAGES ? 0 : at + 1;
  }
  product_arrived();  // what was sent last is nothing
#if PRODUCT_USE == USE_ACCUMULATE
  p->memory.place = place;
#endif
}

ALWAYS_INLINE void product_multiply(product_state* p, engine_tile* tile, int panel) {
  // Sums of their own: where a compiler does not unroll an epilogue, its tile is memory.
  tile_sums sums;
  product_form(p, &sums, panel);
#if PRODUCT_ONE_TILE
  // The place of the tile anew: kept since the first step, it would take registers of the loop.
  walk_start(&p->walk, tile_hidden(p->group), &p->now);
#endif
#if LONG_EPILOGUE
  // The last step has been read, and the tile takes the place of steps.
  barrier(CLK_LOCAL_MEM_FENCE);
  tile->sums = (local float*)p->memory.shared + get_local_id(0);
#endif
  TILE_UNROLL for (int i = 0; i < tile_rows(PRODUCT_TURNED); ++i) {
    TILE_UNROLL for (int j = 0; j < tile_columns(PRODUCT_TURNED); ++j) {
      product_put(tile, i, j, tile_at(&sums, PRODUCT_TURNED, i, j));
    }
  }
  tile_find_anew(&p->memory.place);
}

#if PRODUCT_B_TILE
// The other tile, which is turned, lies behind a step of A as words of pairs of its rows.
ALWAYS_INLINE void product_multiply_tile(product_state* p, engine_tile* tile,
                                         const engine_tile* other, int k, int depth) {
  const int item = (int)get_local_id(0);
  local uint* step = p->memory.shared;
  local uint* columns = step + PRODUCT_WORDS_A;
  p->now.k = product_words(k);
  p->now.depth = (int)product_words(depth);
  const int whole = product_a_is_whole(&p->a, &p->now);
  tile_place place;
  tile_find(&place, item);
  if (k == 0) product_clear_sums(tile);
  barrier(CLK_LOCAL_MEM_FENCE);  // what lies there has been read
  TILE_UNROLL for (int i = 0; i < tile_rows(1); i += 2) {
    const int row = tile_row(&place, 1, i);
    TILE_UNROLL for (int j = 0; j < tile_columns(1); ++j) {
      columns[row / 2 * PRODUCT_LD_B + tile_column(&place, 1, j)] =
          tile_pair(row < depth ? tile_at(other, 1, i, j) : 0.0f,
                    row + 1 < depth ? tile_at(other, 1, i + 1, j) : 0.0f);
    }
  }
  for (int at = 0; at < p->now.depth; at += DEPTH) {
    for (int part = 0; part < PRODUCT_PARTS; ++part) {
      product_bring_a(step, &p->a, &p->now, at, item, whole, part);
    }
    product_sent();
    product_arrived();
    barrier(CLK_LOCAL_MEM_FENCE);  // both operands are complete before they are read
    for (int part = 0; part < PRODUCT_PARTS; ++part) {
      product_block block;
      product_take(&block, &place, step, columns + at * PRODUCT_LD_B, part);
      product_multiply_block(tile, &block);
    }
    barrier(CLK_LOCAL_MEM_FENCE);  // the step has been read
  }
  tile_find_anew(&p->memory.place);
}
#endif

// Straight into memory, for sums that outlive the group. No work-item reads another's elements, so
// nothing has to be waited for.
ALWAYS_INLINE void product_accumulate(product_state* p, global float* to, int panel, int first) {
  tile_sums tile;
  product_form(p, &tile, panel);
  TILE_UNROLL for (int i = 0; i < tile_rows(0); ++i) {
    if (product_row(p, i) >= p->now.rows) continue;
    global float* row = to + product_row(p, i) * TILE_N;
    TILE_UNROLL for (int j = 0; j < tile_columns(0); j += 2) {
      global float2* at = (global float2*)(row + product_column(p, j));
      const float2 sums = (float2)(tile_at(&tile, 0, i, j), tile_at(&tile, 0, i, j + 1));
      *at = first ? sums : *at + sums;
    }
  }
}

#if PRODUCT_USE == USE_VISIT
#include "engines/matrix/columns.cl"  // as product
#elif PRODUCT_USE == USE_STORE
#include "engines/matrix/store.cl"  // as product
#endif
