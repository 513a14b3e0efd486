// SPDX-License-Identifier: Apache-2.0
// Gathers the rows of x that count, whatever their strides, into panels of f32 that the engines read
// as operand B. Rows beyond the last that counts are 0, so that they add nothing.
#include "common/info.cl"
#include "common/rows.cl"
#include "common/types.cl"

#define X_ARGUMENTS                                                                            \
  global const ELEMENT(X_TYPE) * x, long x_offset, row_geometry geometry, long x_h_stride,           \
      global const int *info, long info_offset, global const int *rows, long rows_offset,      \
      long chunk_begin, long segment_begin, long segment_end

// For x w: [panel of TILE_N rows][h][TILE_N]. Work-item (h / H_STEP, panel).
kernel void pack_rows(X_ARGUMENTS, global float* out, long out_offset, long h_count) {
  const long h0 = (long)get_global_id(0) * H_STEP;
  const long h1 = h0 + H_STEP < h_count ? h0 + H_STEP : h_count;
  const long panel = get_global_id(1);
  const long count = info[info_offset + INFO_COUNT];
  global float* to = out + out_offset + panel * h_count * TILE_N;
  for (int n = 0; n < TILE_N; ++n) {
    const long i = chunk_begin + panel * TILE_N + n;
    if (i < count) {
      const long row = rows[rows_offset + i];
      if (row < segment_begin || row >= segment_end) continue;
      const long base = x_offset + row_offset(&geometry, row - segment_begin);
      for (long h = h0; h < h1; ++h) to[h * TILE_N + n] = LOAD(X_TYPE, x, base + h * x_h_stride);
    } else {
      for (long h = h0; h < h1; ++h) to[h * TILE_N + n] = 0.0f;
    }
  }
}

// For x^T dz: [panel of TILE_N columns of x][row][TILE_N]. Work-item (row, panel).
kernel void pack_columns(X_ARGUMENTS, global float* out, long out_offset, long h_count,
                         long row_count) {
  const long i = get_global_id(0);
  const long panel = get_global_id(1);
  if (i >= row_count) return;
  global float* to = out + out_offset + (panel * row_count + i) * TILE_N;
  const long h0 = panel * TILE_N;
  const int valid = h_count - h0 < TILE_N ? (int)(h_count - h0) : TILE_N;
  int n = 0;
  if (chunk_begin + i < info[info_offset + INFO_COUNT]) {
    const long row = rows[rows_offset + chunk_begin + i];
    if (row < segment_begin || row >= segment_end) return;
    const long base = x_offset + row_offset(&geometry, row - segment_begin) + h0 * x_h_stride;
    for (; n < valid; ++n) to[n] = LOAD(X_TYPE, x, base + n * x_h_stride);
  }
  for (; n < TILE_N; ++n) to[n] = 0.0f;
}
