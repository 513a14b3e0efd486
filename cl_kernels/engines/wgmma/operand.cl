// SPDX-License-Identifier: Apache-2.0
// Operands of the wgmma engine: bf16 as copies by tensor maps take it, boxes of 64 elements of a
// row. What is packed has the rows of the matrix one after the other, [row][elements rounded up to
// RUN], whichever of the two is k. What an epilogue stores is blocks of OPERAND_BLOCK of k by a
// panel's columns, [column][k], each a box of its own: no row of memory is as long as k, so that dz
// can take the place of logits panel by panel.
#ifndef TESSERA_WGMMA_OPERAND_CL
#define TESSERA_WGMMA_OPERAND_CL

#if LANES != 1
#error "the wgmma engine has one column per work-item"
#endif
#define PANEL_ITEMS TILE_N
#ifndef STORED_PAIRS
#define STORED_PAIRS 1
#endif
#define OPERAND_BLOCK 64
// 16-bit elements that are read and written at once.
#define RUN 8

#define OPERAND_PACKS_ROWS 1
#define OPERAND_PACKS_COLUMNS 1
#include "engines/pairs.cl"
// Behind it, since it asks for WORD_ELEMENTS.
#include "engines/panels.cl"
#include "engines/wgmma/tile.cl"

// Words from a block to the next: in place of f32 a block begins where those of its columns do.
#define BLOCK_STEP ((STORED_PAIRS == 2 ? OPERAND_BLOCK : OPERAND_BLOCK / 2) * TILE_N)
static inline long operand_index(long extent, long panel, long k, int column) {
  const int within = (uint)k % OPERAND_BLOCK;
  return panel * extent * TILE_N + (ulong)k / OPERAND_BLOCK * BLOCK_STEP +
         column * (OPERAND_BLOCK / 2) + within / 2;
}

// A block on its way, [column][k]; one word more from a column to the next has neighbours in
// different banks.
#define SINK_LD (OPERAND_BLOCK / 2 + 1)
typedef struct {
  global operand_word* base;
  long extent;
  local uint* words;
} operand_sink;
#define OPERAND_SINK(sink, to, extent)        \
  local uint operand_words[TILE_N * SINK_LD]; \
  const operand_sink sink = {to, extent, operand_words}
ALWAYS_INLINE long operand_block_end(long k, long end) { return min(k + OPERAND_BLOCK, end); }
ALWAYS_INLINE void operand_put(const operand_sink* sink, float value, long panel, long k,
                               int column) {
  local ushort* to = (local ushort*)(sink->words + column * SINK_LD);
  to[(uint)k % OPERAND_BLOCK] = float_to_pair(value);
}
ALWAYS_INLINE void operand_put_done(const operand_sink* sink, long panel, long k0, long k1) {
  const int item = (int)get_local_id(0);
  for (long k = k1; k < k0 + OPERAND_BLOCK; ++k) operand_put(sink, 0.0f, panel, k, item);
  // All of the block is there, and what it takes the place of has been read.
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  global uint4* to = (global uint4*)(sink->base + operand_index(sink->extent, panel, k0, 0));
  for (int i = item; i < TILE_N * OPERAND_BLOCK / RUN; i += PANEL_ITEMS) {
    const int runs = OPERAND_BLOCK / RUN;
    local const uint* from = sink->words + i / runs * SINK_LD + i % runs * (RUN / 2);
    to[i] = (uint4)(from[0], from[1], from[2], from[3]);
  }
  // Read before the next block comes.
  barrier(CLK_LOCAL_MEM_FENCE);
}

#ifdef PACK_TYPE
// Elements [k, k + RUN) of a row, 0 beyond k_count.
static inline uint4 run_at(global const ELEMENT(PACK_TYPE) * row, long k, long k_count,
                           long stride) {
#if PACK_CONTIGUOUS && PACK_TYPE == PAIR_TYPE
  if (k + RUN <= k_count && ((ulong)(row + k) & 15) == 0) return *(global const uint4*)(row + k);
#endif
  uint words[RUN / 2];
#pragma unroll
  for (int i = 0; i < RUN / 2; ++i) {
    const long at = k + 2 * i;
    words[i] = at < k_count ? as_uint(pair_at(row, at, k_count, stride)) : 0;
  }
  return (uint4)(words[0], words[1], words[2], words[3]);
}
static inline long row_runs(long elements) { return (elements + RUN - 1) / RUN; }

static inline void operand_pack_rows(global operand_word* out, long k_count, long panel, int column,
                                     local pack_memory* memory,
                                     global const ELEMENT(PACK_TYPE) * from, long k_stride, long k0,
                                     long k1) {
  const int runs = PACK_WORDS * WORD_ELEMENTS / RUN;  // of a row at a time
  global uint4* to = (global uint4*)out + (panel * TILE_N + column) * row_runs(k_count);
  // Other work-items have written where rows begin.
  barrier(CLK_LOCAL_MEM_FENCE);
  for (long first = k0 / RUN; first < row_runs(k1); first += runs) {
    for (int i = PACK_ITEM; i < PACK_COLUMNS * runs; i += PACK_ITEMS) {
      const int n = i / runs;
      const long run = first + i % runs;
      const long start = memory->start[n];
      if (run >= row_runs(k1) || start == ROW_ELSEWHERE) continue;
      to[n * row_runs(k_count) + run] =
          start == ROW_PADDING ? (uint4)(0) : run_at(from + start, run * RUN, k_count, k_stride);
    }
  }
  // All have read before anybody writes there again.
  barrier(CLK_LOCAL_MEM_FENCE);
}

// Rows beyond the last have no memory.
static inline void operand_pack_columns(global operand_word* out, long row_count, long row,
                                        const long* starts, global const ELEMENT(PACK_TYPE) * from,
                                        long k_stride, long k_count, long panel0, long panel1) {
  const long end = min(panel1 * (TILE_N / RUN), row_runs(k_count));
  for (int n = 0; n < WORD_ELEMENTS; ++n) {
    if (row + n >= row_count || starts[n] == ROW_ELSEWHERE) continue;
    global uint4* to = (global uint4*)out + (row + n) * row_runs(k_count);
    for (long run = panel0 * (TILE_N / RUN) + PACK_ITEM; run < end; run += PACK_ITEMS) {
      to[run] = starts[n] == ROW_PADDING ? (uint4)(0)
                                         : run_at(from + starts[n], run * RUN, k_count, k_stride);
    }
  }
}
#endif

#endif
