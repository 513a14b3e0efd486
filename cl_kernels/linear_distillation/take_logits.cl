// SPDX-License-Identifier: Apache-2.0
// A teacher's logits that the caller has, [..., V], laid beside those of the student: LANES tokens
// side by side, scaled and capped.
#include "common/logit.cl"
#include "common/rows.cl"
#include "engines/operand.cl"
#include "linear/operands.cl"
#include "linear_distillation/arguments.h"

#ifndef TEACHER_TYPE
#define TEACHER_TYPE TYPE_F32
#endif
// 1: a row's logits follow each other.
#ifndef TEACHER_CONTIGUOUS
#define TEACHER_CONTIGUOUS 0
#endif
// Columns that one work-item takes.
#ifndef PACK_STEP
#define PACK_STEP 64
#endif

// Work-item (v / PACK_STEP, panel).
kernel void take_logits(global const ELEMENT(TEACHER_TYPE) * logits, global const int* info,
                        global const int* rows, global uchar* teacher, take_logits_arguments a) {
  const long panel = SECOND_INDEX;
  const long v0 = (long)get_global_id(0) * PACK_STEP;
  const long v1 = min(v0 + PACK_STEP, a.size.v_count);
  const long counted = COUNTED_TOKENS;
  if (panel >= a.size.panels || panel * TILE_N >= counted) return;
  for (int column = 0; column < TILE_N; column += LANES) {
    long start[LANES];
    int whole = 0;
    for (int n = 0; n < LANES; ++n) {
      const long i = panel * TILE_N + column + n;
      start[n] = ROW_PADDING;
      if (i < counted) {
        const long row = rows[a.at.rows + a.size.chunk_begin + i];
        start[n] =
            a.at.logits + row_offset(&a.size.geometry, row) + a.size.v_base * a.size.v_stride;
        ++whole;
      }
    }
    long v = v0;
#if LANES > 1 && TEACHER_CONTIGUOUS
    // Blocks of LANES x LANES, turned over in registers.
    for (; whole == LANES && v + LANES <= v1; v += LANES) {
      lane_f block[LANES];
#pragma unroll
      for (int n = 0; n < LANES; ++n) {
        block[n] = LANE_LOAD_TYPE(TEACHER_TYPE, logits + start[n] + v);
      }
      lane_transpose(block);
      for (int n = 0; n < LANES; ++n) {
        const lane_f logit = lane_logit(block[n], a.size.scale, a.size.cap);
        KEPT_STORE(logit, KEPT_OF(teacher, panel, v + n), column);
      }
    }
#endif
    for (; v < v1; ++v) {
      float each[LANES];
      for (int n = 0; n < LANES; ++n) {
        // What pads a panel is a row like another.
        each[n] = start[n] == ROW_PADDING
                      ? 0.0f
                      : LOAD(TEACHER_TYPE, logits, start[n] + v * a.size.v_stride);
      }
      const lane_f logit = lane_logit(LANE_LOAD(each), a.size.scale, a.size.cap);
      KEPT_STORE(logit, KEPT_OF(teacher, panel, v), column);
    }
  }
}
