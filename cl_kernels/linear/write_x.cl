// SPDX-License-Identifier: Apache-2.0
// The end of grad_x: sums of a chunk go to the rows they belong to, rounded once to the caller's
// type; rows that do not count get 0, or NaN where the label is out of range.
#include "common/info.cl"
#include "common/rows.cl"
#include "engines/operand.cl"
#include "linear/arguments.h"

#ifndef OUT_TYPE
#define OUT_TYPE TYPE_F32
#endif
// Elements of H that one work-item takes.
#ifndef PACK_STEP
#define PACK_STEP 64
#endif

// Work-item (h / PACK_STEP, counted row of the chunk).
kernel void write_rows(global const float* sums, global const int* info, global const int* rows,
                       global const float* scale, global ELEMENT(OUT_TYPE) * out,
                       write_rows_arguments a) {
  const long i = SECOND_INDEX;
  if (i >= a.size.row_count || a.size.chunk_begin + i >= info[a.at.info + INFO_COUNT]) return;
  const long h0 = (long)get_global_id(0) * PACK_STEP;
  const long h1 = min(h0 + PACK_STEP, a.size.h_count);
  global const float* from =
      sums + a.at.sums + sums_index(a.size.h_padded, i / TILE_N, 0) + i % TILE_N;
  const long row = rows[a.at.rows + a.size.chunk_begin + i];
  if (row < a.size.out.begin || row >= a.size.out.end) return;
  const long base = a.at.out + row_offset(&a.size.out.geometry, row - a.size.out.begin);
  for (long h = h0; h < h1; ++h) {
    const long at = base + h * a.size.out.h_stride;
    float value = from[h * TILE_N];
    for (int part = 1; part < a.size.parts; ++part) {
      value += from[part * a.size.sums_part + h * TILE_N];
    }
#if DZ_SCALED
    value *= scale[a.at.scale];
#endif
    STORE(OUT_TYPE, out, at, a.size.add ? LOAD(OUT_TYPE, out, at) + value : value);
  }
}

// Work-item (h / PACK_STEP, row of the call).
kernel void write_excluded(global const int* labels, global ELEMENT(OUT_TYPE) * out,
                           write_excluded_arguments a) {
  const long row = a.size.out.begin + SECOND_INDEX;
  if (row >= a.size.out.end) return;
  const int label = labels[a.at.labels + row];
  if (label > LABEL_IGNORED || (label == LABEL_IGNORED && a.size.add)) return;
  const long h0 = (long)get_global_id(0) * PACK_STEP;
  const long h1 = min(h0 + PACK_STEP, a.size.h_count);
  const long base = a.at.out + row_offset(&a.size.out.geometry, row - a.size.out.begin);
  const float value = label == LABEL_IGNORED ? 0.0f : NAN;
  for (long h = h0; h < h1; ++h) STORE(OUT_TYPE, out, base + h * a.size.out.h_stride, value);
}
