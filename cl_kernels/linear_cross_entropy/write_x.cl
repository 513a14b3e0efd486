// SPDX-License-Identifier: Apache-2.0
// The end of grad_x: sums of a chunk go to the rows they belong to, rounded once to the caller's
// type; rows that do not count get 0, or NaN where the label is out of range.
#include "common/info.cl"
#include "common/rows.cl"
#include "common/types.cl"

#define OUT_ARGUMENTS \
  global ELEMENT(OUT_TYPE) * out, long out_offset, row_geometry geometry, long out_h_stride, \
      long segment_begin, long segment_end

// Work-item (h / H_STEP, counted row of the chunk).
kernel void write_rows(global const float* sums, long sums_offset, int h_padded, long h_count,
                       long row_count, global const int* info, long info_offset,
                       global const int* rows, long rows_offset, long chunk_begin, OUT_ARGUMENTS,
                       int add) {
  const long i = get_global_id(1);
  if (i >= row_count || chunk_begin + i >= info[info_offset + INFO_COUNT]) return;
  const long h0 = (long)get_global_id(0) * H_STEP;
  const long h1 = h0 + H_STEP < h_count ? h0 + H_STEP : h_count;
  global const float* from = sums + sums_offset + i / TILE_N * h_padded * TILE_N + i % TILE_N;
  const long row = rows[rows_offset + chunk_begin + i];
  if (row < segment_begin || row >= segment_end) return;
  const long base = out_offset + row_offset(&geometry, row - segment_begin);
  for (long h = h0; h < h1; ++h) {
    const long at = base + h * out_h_stride;
    const float value = from[h * TILE_N];
    STORE(OUT_TYPE, out, at, add ? LOAD(OUT_TYPE, out, at) + value : value);
  }
}

// Work-item (h / H_STEP, row of the call).
kernel void write_excluded(global const int* labels, long labels_offset, long h_count,
                           OUT_ARGUMENTS, int add) {
  const long row = segment_begin + get_global_id(1);
  if (row >= segment_end) return;
  const int label = labels[labels_offset + row];
  if (label > LABEL_IGNORED || (label == LABEL_IGNORED && add)) return;
  const long h0 = (long)get_global_id(0) * H_STEP;
  const long h1 = h0 + H_STEP < h_count ? h0 + H_STEP : h_count;
  const long base = out_offset + row_offset(&geometry, row - segment_begin);
  const float value = label == LABEL_IGNORED ? 0.0f : NAN;
  for (long h = h0; h < h1; ++h) STORE(OUT_TYPE, out, base + h * out_h_stride, value);
}
