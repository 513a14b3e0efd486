// SPDX-License-Identifier: Apache-2.0
// Gathers the rows of x that count, whatever their strides, into panels of f32 that the engines read
// as operand B. Rows beyond the last that counts are 0, so that they add nothing.
#include "common/info.cl"
#include "common/lanes.cl"
#include "common/rows.cl"

#define X_ARGUMENTS                                                                            \
  global const ELEMENT(X_TYPE) * x, long x_offset, row_geometry geometry, long x_h_stride,           \
      global const int *info, long info_offset, global const int *rows, long rows_offset,      \
      long chunk_begin, long segment_begin, long segment_end

// Where row i of the chunk begins; ROW_PADDING: it is beyond those that count, ROW_ELSEWHERE: another
// launch has its memory.
#define ROW_PADDING (-1)
#define ROW_ELSEWHERE (-2)
static inline long row_start(long i, long count, long x_offset, const row_geometry* geometry,
                             global const int* rows, long segment_begin, long segment_end) {
  if (i >= count) return ROW_PADDING;
  const long row = rows[i];
  if (row < segment_begin || row >= segment_end) return ROW_ELSEWHERE;
  return x_offset + row_offset(geometry, row - segment_begin);
}
#define ROW_START(i)                                                                           \
  row_start(i, info[info_offset + INFO_COUNT], x_offset, &geometry, rows + rows_offset,        \
            segment_begin, segment_end)

// What a row is packed as: an f32 for each element, or with X_PAIRS, for engines that multiply bf16 by
// pairs, a word of the bits of two, the second 0 where H is odd.
#if X_PAIRS
#if X_TYPE != TYPE_BF16 || H_STEP % 2 != 0
#error "pairs are of bf16, and a pair is packed by one work-item"
#endif
#define WORD_ELEMENTS 2
#define WORD_VECTOR(at) AS_LANE_F(LANE_LOAD_PAIRS(x + (at)))
#define WORD_AT(start, h) x_pair(x + (start), h, h_count, x_h_stride)
static inline float x_pair(global const ushort* row, long h, long h_count, long h_stride) {
  uint pair = row[h * h_stride];
  if (h + 1 < h_count) pair |= (uint)row[(h + 1) * h_stride] << 16;
  return as_float(pair);
}
#else
#define WORD_ELEMENTS 1
#define WORD_VECTOR(at) LANE_LOAD_TYPE(X_TYPE, x + (at))
#define WORD_AT(start, h) LOAD(X_TYPE, x, (start) + (h)*x_h_stride)
#endif

// For x w: [panel of TILE_N rows][word of h][TILE_N], or with ALONG_K [panel][h / LANES][TILE_N][LANES].
// Work-item (h / H_STEP, panel).
kernel void pack_rows(X_ARGUMENTS, global float* out, long out_offset, long h_count) {
  const long h0 = (long)get_global_id(0) * H_STEP;
  const long h1 = h0 + H_STEP < h_count ? h0 + H_STEP : h_count;
  const long panel = get_global_id(1);
#if ALONG_K
  for (int n = 0; n < TILE_N; ++n) {
    const long start = ROW_START(chunk_begin + panel * TILE_N + n);
    if (start == ROW_ELSEWHERE) continue;
    global float* to = out + out_offset + panel * WHOLE_VECTORS(h_count) * TILE_N + n * LANES;
    long h = h0;
#if LANES > 1 && X_CONTIGUOUS
    for (; start >= 0 && h + LANES <= h1; h += LANES) {
      LANE_STORE(WORD_VECTOR(start + h), to + h * TILE_N);
    }
#endif
    for (; h < h1; ++h) {
      to[h / LANES * LANES * TILE_N + h % LANES] =
          start < 0 ? 0.0f : WORD_AT(start, h);
    }
  }
#else
  const long words = (h_count + WORD_ELEMENTS - 1) / WORD_ELEMENTS;
  global float* to = out + out_offset + panel * words * TILE_N;
  for (int n0 = 0; n0 < TILE_N; n0 += LANES) {
    long start[LANES];
    int whole = 0;
    for (int n = 0; n < LANES; ++n) {
      start[n] = ROW_START(chunk_begin + panel * TILE_N + n0 + n);
      whole += start[n] >= 0;
    }
    long h = h0;
#if LANES > 1 && X_CONTIGUOUS
    // Blocks of LANES x LANES words, turned over in registers.
    for (; whole == LANES && h + LANES * WORD_ELEMENTS <= h1; h += LANES * WORD_ELEMENTS) {
      lane_f block[LANES];
#pragma unroll
      for (int n = 0; n < LANES; ++n) block[n] = WORD_VECTOR(start[n] + h);
      lane_transpose(block);
#pragma unroll
      for (int i = 0; i < LANES; ++i) {
        LANE_STORE(block[i], to + (h / WORD_ELEMENTS + i) * TILE_N + n0);
      }
    }
#endif
    for (int n = 0; n < LANES; ++n) {
      if (start[n] == ROW_ELSEWHERE) continue;
      for (long k = h; k < h1; k += WORD_ELEMENTS) {
        to[k / WORD_ELEMENTS * TILE_N + n0 + n] =
            start[n] == ROW_PADDING ? 0.0f : WORD_AT(start[n], k);
      }
    }
  }
#endif
}

// For x^T dz: [panel of TILE_N columns of x][row][TILE_N]. Work-item (row, group of PANEL_STEP panels).
kernel void pack_columns(X_ARGUMENTS, global float* out, long out_offset, long h_count,
                         long row_count) {
  const long i = get_global_id(0);
  if (i >= row_count) return;
  const long start = ROW_START(chunk_begin + i);
  if (start == ROW_ELSEWHERE) return;
  const long panels = (h_count + TILE_N - 1) / TILE_N;
  const long begin = (long)get_global_id(1) * PANEL_STEP;
  const long end = begin + PANEL_STEP < panels ? begin + PANEL_STEP : panels;
  for (long panel = begin; panel < end; ++panel) {
    const long h0 = panel * TILE_N;
    global float* to = out + out_offset + (panel * row_count + i) * TILE_N;
    const int valid = start < 0 ? 0 : h_count - h0 < TILE_N ? (int)(h_count - h0) : TILE_N;
    int n = 0;
#if LANES > 1 && X_CONTIGUOUS
    for (; n + LANES <= valid; n += LANES) {
      LANE_STORE(LANE_LOAD_TYPE(X_TYPE, x + start + h0 + n), to + n);
    }
#endif
    // One loop: of two with bounds per work-item, Intel's vectoriser loads for rows that have none.
    for (; n < TILE_N; ++n) {
      to[n] = n < valid ? LOAD(X_TYPE, x, start + (h0 + n) * x_h_stride) : 0.0f;
    }
  }
}
