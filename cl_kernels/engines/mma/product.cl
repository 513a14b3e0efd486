// SPDX-License-Identifier: Apache-2.0
// The engine for matrix units that a warp of 32 drives together (NVIDIA's mma.sync, by inline PTX):
// products of bf16 with f32 sums. Of the STAGES steps in local memory one is multiplied while the
// others come. MMA 1 is the instruction; MMA 2 has every work-item form the elements that the
// instruction would give it, for devices without one.

// A warp has PRODUCT_M x PRODUCT_N results of the instruction, each 16 x 8.
#define PRODUCT_M (TILE_M / WARPS_M / 16)
#define PRODUCT_N (TILE_N / WARPS_N / 8)

#define PRODUCT_FOR_COLUMNS(column) \
  for (int column = (int)get_local_id(0) % TILE_N; column < TILE_N; column += PRODUCT_ITEMS)
#define PRODUCT_FOR_ROWS(m, rows) \
  for (int m = (int)get_local_id(0) / TILE_N; m < (rows); m += PRODUCT_OWNERS)
ALWAYS_INLINE float product_at(const engine_tile* tile, int m, int column) {
  return tile->at[m * ENGINE_LD_C + column];
}
ALWAYS_INLINE void product_put(engine_tile* tile, int m, int column, float value) {
  tile->at[m * ENGINE_LD_C + column] = value;
}

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

#include "engines/mma/operand_a.cl"  // as product

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

// The result r of a work-item: 2 columns of a row, as the instruction spreads them over a warp.
#define PRODUCT_RESULTS (2 * PRODUCT_M * PRODUCT_N)
ALWAYS_INLINE int product_result_row(int r, int warp, int lane) {
  return warp / WARPS_N * (16 * PRODUCT_M) + r / (2 * PRODUCT_N) * 16 + r % 2 * 8 + lane / 4;
}
ALWAYS_INLINE int product_result_column(int r, int warp, int lane) {
  return warp % WARPS_N * (8 * PRODUCT_N) + r / 2 % PRODUCT_N * 8 + lane % 4 * 2;
}

#if MMA == 1
// sums += a * b of one 16 x 8 result over 16 elements of k.
ALWAYS_INLINE void product_instruction(float2* low, float2* high, const uint* a, const uint* b) {
  __asm__ volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(low->x), "+f"(low->y), "+f"(high->x), "+f"(high->y)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// A warp's share of a block of both operands.
typedef struct {
  uint a[PRODUCT_M][4], b[PRODUCT_N][2];
} product_block;
ALWAYS_INLINE void product_take(product_block* block, local const uint* step, int k, int warp,
                                int lane) {
  local const uint* b_at = step + PRODUCT_WORDS_A + (8 * k + lane % 4) * PRODUCT_LD_B +
                           warp % WARPS_N * (8 * PRODUCT_N) + lane / 4;
  local const uint* a_at = product_blocks_a(step, warp / WARPS_N * (16 * PRODUCT_M), k, lane);
#pragma unroll
  for (int m = 0; m < PRODUCT_M; ++m) {
    product_block_a(block->a[m], a_at + m * PRODUCT_NEXT_A, lane);
  }
#pragma unroll
  for (int n = 0; n < PRODUCT_N; ++n) {
    block->b[n][0] = b_at[8 * n];
    block->b[n][1] = b_at[4 * PRODUCT_LD_B + 8 * n];
  }
}
ALWAYS_INLINE void product_multiply_block(float2* sums, const product_block* block) {
#pragma unroll
  for (int m = 0; m < PRODUCT_M; ++m) {
#pragma unroll
    for (int n = 0; n < PRODUCT_N; ++n) {
      float2* to = sums + 2 * (m * PRODUCT_N + n);
      product_instruction(to, to + 1, block->a[m], block->b[n]);
    }
  }
}
#else
typedef struct {
  local const uint* step;
  int k, warp, lane;
} product_block;
ALWAYS_INLINE void product_take(product_block* block, local const uint* step, int k, int warp,
                                int lane) {
  block->step = step;
  block->k = k;
  block->warp = warp;
  block->lane = lane;
}
ALWAYS_INLINE void product_multiply_block(float2* sums, const product_block* block) {
  for (int r = 0; r < PRODUCT_RESULTS; ++r) {
    const int m = product_result_row(r, block->warp, block->lane);
    const int n = product_result_column(r, block->warp, block->lane);
    float2 sum = sums[r];
    for (int k = 16 * block->k; k < 16 * (block->k + 1); ++k) {
      const float a = as_float(product_element_a(block->step, m, k) << 16);
      const uint2 b = vload2(0, block->step + PRODUCT_WORDS_A + k / 2 * PRODUCT_LD_B + n);
      sum = fma((float2)(a), as_float2(k % 2 ? b & (uint2)(0xffff0000u) : b << 16), sum);
    }
    sums[r] = sum;
  }
}
#endif

ALWAYS_INLINE local uint* product_stage(const product_state* p, int stage) {
  return p->memory.shared + stage * PRODUCT_STAGE;
}

// The first word of k from `k` on whose step is not left out. The same for every work-item of the
// group; PRODUCT_KEPT_STEP is a multiple of DEPTH.
ALWAYS_INLINE int product_skip(const product_state* p, int panel, int k) {
#if PRODUCT_KEPT
  while (k < p->now.depth &&
         !product_keeps(p, &p->now, panel, k / PRODUCT_KEPT_STEP * PRODUCT_KEPT_STEP)) {
    k += DEPTH;
  }
#endif
  return k;
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
ALWAYS_INLINE void product_sums(const product_state* p, int panel, float2* sums) {
  const int item = (int)get_local_id(0);
  const int warp = item / 32, lane = item % 32;
  const int whole = product_a_is_whole(&p->a, &p->now);
#pragma unroll
  for (int r = 0; r < PRODUCT_RESULTS; ++r) sums[r] = (float2)(0.0f);
  int k = product_skip(p, panel, 0), coming = k, at = 0;
  // The steps, and the tile in their place, are free to be overwritten.
  barrier(CLK_LOCAL_MEM_FENCE);
// Unrolled, its addresses would be kept in registers throughout.
#pragma unroll 1
  for (int stage = 0; stage < STAGES - 1; ++stage) {
#pragma unroll
    for (int part = 0; part < PRODUCT_PARTS; ++part) {
      product_bring(p, panel, coming, stage, item, whole, part);
    }
    coming = product_skip(p, panel, coming + DEPTH);
    product_sent();
  }
  while (k < p->now.depth) {
    product_arrived_but_last();
    // This step is complete, and all have read the one before it, whose place the next takes.
    barrier(CLK_LOCAL_MEM_FENCE);
    product_clear_half(p, product_stage(p, at), k, item);
    const int free = at == 0 ? STAGES - 1 : at - 1;
#pragma unroll
    for (int part = 0; part < PRODUCT_PARTS; ++part) {
      product_block block;
      product_take(&block, product_stage(p, at), part, warp, lane);
      product_bring(p, panel, coming, free, item, whole, part);
      product_multiply_block(sums, &block);
    }
    coming = product_skip(p, panel, coming + DEPTH);
    product_sent();
    at = at + 1 == STAGES ? 0 : at + 1;
    k = product_skip(p, panel, k + DEPTH);
  }
  product_arrived();  // what was sent last is nothing
}

// Into the local tile, for an epilogue; complete when this returns.
ALWAYS_INLINE void product_put_sums(const product_state* p, engine_tile* tile, const float2* sums,
                                    int first) {
  const int item = (int)get_local_id(0);
  tile->at = (local float*)p->memory.shared + PRODUCT_TILE_AT;
  barrier(CLK_LOCAL_MEM_FENCE);  // the steps that it takes the place of have been read
#pragma unroll
  for (int r = 0; r < PRODUCT_RESULTS; ++r) {
    local float2* at =
        (local float2*)(tile->at + product_result_row(r, item / 32, item % 32) * ENGINE_LD_C +
                        product_result_column(r, item / 32, item % 32));
    *at = first ? sums[r] : *at + sums[r];
  }
  // The epilogue reads elements that other work-items wrote.
  barrier(CLK_LOCAL_MEM_FENCE);
}

#if PRODUCT_B_TILE
// The rows of the other tile become the pairs of one step after the other.
ALWAYS_INLINE void product_multiply_tile(product_state* p, engine_tile* tile,
                                         const engine_tile* other, int k, int depth) {
  const int item = (int)get_local_id(0);
  p->now.k = product_words(k);
  p->now.depth = (int)product_words(depth);
  const int whole = product_a_is_whole(&p->a, &p->now);
  float2 sums[PRODUCT_RESULTS];
#pragma unroll
  for (int r = 0; r < PRODUCT_RESULTS; ++r) sums[r] = (float2)(0.0f);
  local uint* step = product_stage(p, 0);
  for (int at = 0; at < p->now.depth; at += DEPTH) {
    barrier(CLK_LOCAL_MEM_FENCE);  // the step before has been read
    for (int part = 0; part < PRODUCT_PARTS; ++part) {
      product_bring_a(step, &p->a, &p->now, at, item, whole, part);
    }
    product_sent();
    for (int i = item; i < DEPTH * TILE_N; i += PRODUCT_ITEMS) {
      const int word = i / TILE_N, n = i % TILE_N, row = 2 * (at + word);
      const uint low = row < depth ? float_to_bf16(product_at(other, row, n)) : 0;
      const uint high = row + 1 < depth ? float_to_bf16(product_at(other, row + 1, n)) : 0;
      step[PRODUCT_WORDS_A + word * PRODUCT_LD_B + n] = low | high << 16;
    }
    product_arrived();
    barrier(CLK_LOCAL_MEM_FENCE);  // both operands are complete before they are read
    for (int part = 0; part < PRODUCT_PARTS; ++part) {
      product_block block;
      product_take(&block, step, part, item / 32, item % 32);
      product_multiply_block(sums, &block);
    }
  }
  product_put_sums(p, tile, sums, k == 0);
}
#else
ALWAYS_INLINE void product_multiply(product_state* p, engine_tile* tile, int panel) {
  float2 sums[PRODUCT_RESULTS];
  product_sums(p, panel, sums);
  product_put_sums(p, tile, sums, 1);
}
#endif

// Straight into memory, for sums that outlive the group. No work-item reads another's elements, so
// nothing has to be waited for.
ALWAYS_INLINE void product_accumulate(product_state* p, global float* to, int panel, int first) {
  const int item = (int)get_local_id(0);
  float2 sums[PRODUCT_RESULTS];
  product_sums(p, panel, sums);
#pragma unroll
  for (int r = 0; r < PRODUCT_RESULTS; ++r) {
    const int m = product_result_row(r, item / 32, item % 32);
    if (m >= p->now.rows) continue;
    global float2* at =
        (global float2*)(to + m * TILE_N + product_result_column(r, item / 32, item % 32));
    *at = first ? sums[r] : *at + sums[r];
  }
}

#if PRODUCT_USE == USE_STORE
#include "engines/store.cl"  // as product
#endif
