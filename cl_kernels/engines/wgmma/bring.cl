// SPDX-License-Identifier: Apache-2.0
// Operands come to local memory, by a warp whose first lane asks for all steps of all tiles. A box
// has 64 elements along the contiguous index of an operand by so many rows.

ALWAYS_INLINE uint product_full(const product_state* p, uint stage) {
  return p->memory.barriers + 8 * stage;
}
ALWAYS_INLINE uint product_empty(const product_state* p, uint stage) {
  return p->memory.barriers + 8 * (STAGES + stage);
}

// Lines of a stored operand's memory: a block has TILE_N of them, each of OPERAND_BLOCK k of a
// column; in place of f32 another block begins after twice as many.
#define PRODUCT_BLOCK_LINES (TILE_N * (STORED_PAIRS == 2 ? 2 : 1))
ALWAYS_INLINE int product_panel_lines(long extent) {
  return (int)(extent * TILE_N / (PRODUCT_LINE / 4));
}
ALWAYS_INLINE int product_block_line(long extent, int panel, int k) {
  return panel * product_panel_lines(extent) + k / OPERAND_BLOCK * PRODUCT_BLOCK_LINES;
}

// Describes a matrix of `rows` lines of `columns` elements, by the whole warp.
ALWAYS_INLINE void product_map(const product_state* p, global uchar* map, global const void* base,
                               long columns, long rows, long row_bytes, uint box_rows) {
  const int lane = (int)get_local_id(0) % 32;
  local uint* draft = (local uint*)(p->memory.steps + STAGES * PRODUCT_STAGE);
  warp_sync();  // what was there has been published
  draft[lane] = 0;
  warp_sync();
  if (lane == 0) {
    map_describe((ulong)(size_t)draft, (global const ushort*)base, (uint)columns, (uint)rows,
                 (ulong)row_bytes / MAP_STRIDE_UNIT, box_rows);
  }
  warp_sync();
  map_publish(map, (ulong)(size_t)draft);
}

ALWAYS_INLINE void product_map_a(const product_state* p, global uchar* map) {
  const product_a* a = &p->a;
#if PRODUCT_A_STORED
  const int last = (a->k_count - 1) / TILE_N;
  const int lines = product_block_line(a->extent, last, (int)p->walk.m_count - 1) + TILE_N;
  product_map(p, map, a->base, PRODUCT_STEP, lines, PRODUCT_LINE, PRODUCT_STEP);
#elif PRODUCT_A_BY_K
  product_map(p, map, a->base, a->k_count, p->walk.m_count, 2 * a->m_stride, TILE_M);
#else
  product_map(p, map, a->base, p->walk.m_count, a->k_count, 2 * a->k_stride, PRODUCT_STEP);
#endif
}
ALWAYS_INLINE void product_map_b(const product_state* p, global uchar* map) {
  const matrix_b* b = &p->b;
#if PRODUCT_B_STORED
  const int lines = product_block_line(b->extent, p->panel_end - 1, p->a.k_count - 1) + TILE_N;
  product_map(p, map, b->base, PRODUCT_STEP, lines, PRODUCT_LINE, TILE_N);
#elif PRODUCT_B_BY_K
  product_map(p, map, b->base, p->a.k_count, p->panel_end * TILE_N, 4 * b->extent, TILE_N);
#else
  const long n_count = p->out.n_count;
  product_map(p, map, b->base, n_count, p->a.k_count, (n_count + 7) / 8 * 16, PRODUCT_STEP);
#endif
}

// Brings the step from element k of a tile's on.
ALWAYS_INLINE void product_bring_a(const product_state* p, global const uchar* map,
                                   const a_tile* now, int k, uint to, uint full) {
#if PRODUCT_A_STORED
  for (int m = 0; m < TILE_M; m += OPERAND_BLOCK) {
    const int line = product_block_line(p->a.extent, k / TILE_N, (int)now->m + m);
    map_copy(to + m * PRODUCT_LINE, map, 0, line + k % TILE_N, full);
  }
#elif PRODUCT_A_BY_K
  map_copy(to, map, k, (int)now->m, full);
#else
  for (int m = 0; m < TILE_M; m += PRODUCT_STEP) {
    map_copy(to + m * PRODUCT_LINE, map, (int)now->m + m, k, full);
  }
#endif
}
ALWAYS_INLINE void product_bring_b(const product_state* p, global const uchar* map, int panel,
                                   int k, uint to, uint full) {
#if PRODUCT_B_STORED
  map_copy(to, map, 0, product_block_line(p->b.extent, panel, k), full);
#elif PRODUCT_B_BY_K
  map_copy(to, map, k, panel * TILE_N, full);
#else
  for (int n = 0; n < TILE_N; n += PRODUCT_STEP) {
    map_copy(to + n * PRODUCT_LINE, map, panel * TILE_N + n, k, full);
  }
#endif
}

// All steps of all tiles of the group, in the order in which they are multiplied.
ALWAYS_INLINE void product_bring(const product_state* p) {
  if (p->panel_begin >= p->panel_end || p->next.rows <= 0 || p->a.k_count <= 0) return;
  // The first multiple of a map's size in the group's scratch.
  global uchar* map_a =
      (global uchar*)(((ulong)p->scratch + MAP_BYTES - 1) & ~(ulong)(MAP_BYTES - 1));
  global uchar* map_b = map_a + MAP_BYTES;
  product_map_a(p, map_a);
  product_map_b(p, map_b);
  warp_sync();
  if (get_local_id(0) % 32 != 0) return;
  map_acquire(map_a);
  map_acquire(map_b);
  const uint stages = (uint)(size_t)p->memory.steps;
  uint stage = 0, parity = 1;  // the phase before the first has ended
  for (a_tile now = p->next; now.rows > 0; walk_next(&p->walk, p->groups, &now)) {
    for (int panel = p->panel_begin; panel < p->panel_end; ++panel) {
      for (int step = 0; step < product_steps(now.depth); ++step) {
        const int k = (int)product_elements(now.k) + step * PRODUCT_STEP;
        const uint to = stages + stage * PRODUCT_STAGE, full = product_full(p, stage);
        while (!mbarrier_has_ended(product_empty(p, stage), parity)) {
        }
        mbarrier_arrive_expecting(full, PRODUCT_STAGE);
        product_bring_a(p, map_a, &now, k, to, full);
        product_bring_b(p, map_b, panel, k, to + PRODUCT_BYTES_A, full);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
      }
    }
  }
}
