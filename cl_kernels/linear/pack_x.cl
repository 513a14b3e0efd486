// SPDX-License-Identifier: Apache-2.0
// Gathers the rows of x that count, whatever their strides, into operand B of the engine's format.
// Rows beyond the last that counts are 0, so that they add nothing.
#include "common/info.cl"
#include "common/rows.cl"
#include "linear/arguments.h"

#ifndef X_TYPE
#define X_TYPE TYPE_F32
#endif
#define PACK_TYPE X_TYPE
#define PACK_CONTIGUOUS X_CONTIGUOUS
#include "engines/operand.cl"

// Elements of H that a work-item takes, in pack_columns panels of columns.
#ifndef PACK_STEP
#define PACK_STEP 64
#endif
#ifndef PANEL_STEP
#define PANEL_STEP 16
#endif

// Where row i of the call's list begins; ROW_PADDING: it is beyond those that count, ROW_ELSEWHERE:
// another launch has its memory.
static inline long row_start(long i, global const int* info, global const int* rows,
                             const row_segment* x) {
  if (i >= info[INFO_COUNT]) return ROW_PADDING;
  const long row = rows[i];
  if (row < x->begin || row >= x->end) return ROW_ELSEWHERE;
  return row_offset(&x->geometry, row - x->begin);
}

// For x w: operand B of depth H, its columns tokens. Work-group (h / PACK_WORDS / PACK_STEP, block
// of columns), of PACK_GROUP work-items where they share it (Engine::pack_range).
#if PANEL_ITEMS > 1
#define PACK_KERNEL __attribute__((reqd_work_group_size(PACK_GROUP, 1, 1)))
#else
#define PACK_KERNEL
#endif
kernel PACK_KERNEL void pack_rows(global const ELEMENT(X_TYPE) * x, global const int* info,
                                  global const int* rows, global operand_word* out,
                                  pack_rows_arguments a) {
  PACK_SPACE pack_memory memory;
  const long h0 = (long)get_group_id(0) * PACK_WORDS * PACK_STEP;
  const long h1 = min(h0 + PACK_WORDS * PACK_STEP, a.size.h_count);
  const long begin = SECOND_INDEX * PACK_BLOCK;
  const long panel = begin / TILE_N;
  if (panel >= a.size.panels) return;
  for (long at = begin; at < begin + PACK_BLOCK; at += PACK_COLUMNS) {
    for (int n = PACK_ITEM; n < PACK_COLUMNS; n += PACK_ITEMS) {
      memory.start[n] =
          row_start(a.size.chunk_begin + at + n, info + a.at.info, rows + a.at.rows, &a.size.x);
    }
    operand_pack_rows(out + a.at.out, a.size.h_count, panel, (int)(at % TILE_N), &memory,
                      x + a.at.x, a.size.x.h_stride, h0, h1);
  }
}

// For dz^T x: operand B of depth tokens, its columns H. Work-item (word of rows, group of
// PANEL_STEP panels); where work-items share the columns of a panel, a work-group (group of panels,
// word).
kernel void pack_columns(global const ELEMENT(X_TYPE) * x, global const int* info,
                         global const int* rows, global operand_word* out,
                         pack_columns_arguments a) {
#if PANEL_ITEMS > 1
  const long i = SECOND_INDEX * WORD_ELEMENTS;
  const long begin = (long)get_group_id(0) * PANEL_STEP;
#else
  const long i = (long)get_global_id(0) * WORD_ELEMENTS;
  const long begin = SECOND_INDEX * PANEL_STEP;
#endif
  if (i >= a.size.row_count) return;
  long start[WORD_ELEMENTS];
  for (int n = 0; n < WORD_ELEMENTS; ++n) {
    start[n] = row_start(a.size.chunk_begin + i + n, info + a.at.info, rows + a.at.rows, &a.size.x);
  }
  const long panels = (a.size.h_count + TILE_N - 1) / TILE_N;
  operand_pack_columns(out + a.at.out, a.size.row_count, i, start, x + a.at.x, a.size.x.h_stride,
                       a.size.h_count, begin, min(begin + PANEL_STEP, panels));
}
