// SPDX-License-Identifier: Apache-2.0
// A tile of C goes from registers to a matrix of the caller's.

#define PRODUCT_RUNS (PRODUCT_OUT_TYPE == TYPE_BF16 && PRODUCT_OUT_LAYOUT != STRIDED)
#if PRODUCT_RUNS
// A run is 8 elements along the matrix's contiguous index, 16 bytes. A warp has 8 rows by 8 columns
// of the tile in a word of each lane, two rows of a column, and turns them over for two columns of
// a row. Of four such blocks a lane then has a word each, and gets a run of one for them.
#if PRODUCT_OUT_LAYOUT == ALONG_FIRST
ALWAYS_INLINE uint product_turned(uint words) { return words; }
ALWAYS_INLINE long product_run_stride(const product_out* out) { return out->n_stride; }
// Block i of four: its first row, in eighths of them, and which of the work-item's columns it has.
ALWAYS_INLINE int product_block_row(int four, int i) { return four / 2 * 4 + i; }
ALWAYS_INLINE int product_block_column(int four, int i) { return four % 2; }
ALWAYS_INLINE long product_run_at(const product_out* out, int row, int column, int line) {
  return (column + line) * out->n_stride + row;
}
#else
ALWAYS_INLINE uint product_turned(uint words) { return warp_transpose(words); }
ALWAYS_INLINE long product_run_stride(const product_out* out) { return out->m_stride; }
ALWAYS_INLINE int product_block_row(int four, int i) { return four * 2 + i / 2; }
ALWAYS_INLINE int product_block_column(int four, int i) { return i % 2; }
ALWAYS_INLINE long product_run_at(const product_out* out, int row, int column, int line) {
  return (row + line) * out->m_stride + column;
}
#endif
// 1: the tile has all of its elements, and runs begin where 16 bytes may be read and written.
ALWAYS_INLINE int product_has_runs(const product_state* p, int panel) {
  return p->now.rows == TILE_M && product_columns(p, panel) == TILE_N &&
         ((ulong)product_place(p, panel) & 15) == 0 && product_run_stride(&p->out) % 8 == 0;
}
ALWAYS_INLINE void product_store_runs(const product_state* p, const engine_tile* tile, int panel) {
  const int item = p->memory.item, lane = item % 4, line = item % 32 / 4;
  const int first_column = item / 32 * 16;  // of the warp
  global ushort* to = (global ushort*)product_place(p, panel);
#pragma unroll
  for (int four = 0; four < TILE_SUMS / 8; ++four) {
    const int row = 8 * product_block_row(four, lane);
    const int column = first_column + 8 * product_block_column(four, lane);
    global uint4* run = (global uint4*)(to + product_run_at(&p->out, row, column, line));
    uint words[4] = {0, 0, 0, 0};
    if (p->out.how == STORE_ADD) {
      const uint4 there = *run;
      words[0] = there.x, words[1] = there.y, words[2] = there.z, words[3] = there.w;
      warp_turn(words, lane);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 2 * product_block_row(four, i), j = product_block_column(four, i);
      float low = product_at(tile, at, j), high = product_at(tile, at + 1, j);
      if (p->out.how == STORE_ADD) {
        const uint there = product_turned(words[i]);
        low += bf16_to_float((ushort)there);
        high += bf16_to_float((ushort)(there >> 16));
      }
      words[i] = product_turned(warp_pair(low, high));
    }
    warp_turn(words, lane);
    *run = (uint4)(words[0], words[1], words[2], words[3]);
  }
}
#endif

ALWAYS_INLINE void product_store(product_state* p, const engine_tile* tile, int panel) {
#if PRODUCT_RUNS
  if (product_has_runs(p, panel)) {
    product_store_runs(p, tile, panel);
    return;
  }
#endif
  global ELEMENT(PRODUCT_OUT_TYPE)* to = product_place(p, panel);
  const int columns = product_columns(p, panel);
  const int row = product_row(p, 0);
  PRODUCT_FOR_ROWS(i, p->now.rows) {
    const int m = row + product_ahead(i);
    if (m >= p->now.rows) continue;
    PRODUCT_FOR_COLUMNS(j) {
      const int n = product_column(p, j);
      if (n >= columns) continue;
      const long at = m * p->out.m_stride + n * p->out.n_stride;
      const float value = product_at(tile, i, j);
      STORE(PRODUCT_OUT_TYPE, to, at,
            p->out.how == STORE_ADD ? LOAD(PRODUCT_OUT_TYPE, to, at) + value : value);
    }
  }
}
