// SPDX-License-Identifier: Apache-2.0
// grad_w[h][v] (+)= sum over the rows of a chunk of x[row][h] * dz[row][v], as tiles [v][h]: A is
// dz, whose k are tokens here, B is x packed by columns. Written with the caller's type and strides
// when the chunk is all there is, else accumulated in f32. DZ_SCALED: times what dz was divided by
// (fit_f16.cl).
#include "common/info.cl"
#include "linear/operands.cl"

#ifndef OUT_TYPE
#define OUT_TYPE TYPE_F32
#endif
#ifndef OUT_LAYOUT
#define OUT_LAYOUT W_VH  // whose h, n here, is contiguous: ALONG_SECOND
#endif
#define DW_USE USE_STORE
#define DW_A_STORED 1
#define DW_B_COLUMNS 1
#define DW_OUT_TYPE OUT_TYPE
#define DW_OUT_LAYOUT OUT_LAYOUT
#define DW_KEPT FILTER
#include "engines/product.cl"  // as dw

// Work-groups: (group of parts of the vocabulary, group of panels of h).
kernel DW_KERNEL void grad_w(global const operand_word* dz, global const operand_word* x,
                             global const int* info, global ELEMENT(OUT_TYPE) * out,
                             global const int* counts, global const float* scale,
                             global float* scratch, grad_w_arguments a, engine_call e) {
  DW_LOCALS(memory);
  const int tokens = (int)clamp(COUNTED_TOKENS, 0L, (long)a.size.row_count);
  const dw_a dz_columns = {dz + a.at.dz, a.size.dz_columns, tokens};
  const matrix_b x_columns = {x + a.at.x, dw_words(a.size.row_count)};
  const dw_out to = {out + a.at.out, a.size.v_stride, a.size.h_stride, a.size.h_count,
                     a.size.store};
  dw_state p;
  p.out = to;
#if FILTER
  const kept_tiles kept = {counts + a.at.counts, a.size.filter_tiles, 0};
  p.kept = kept;
#endif
  dw_open(&p, &memory, scratch + a.at.scratch, &e, &dz_columns, &x_columns, a.size.v_count, 0,
          a.size.panels);
  while (dw_next(&p)) {
#if FILTER
    if (p.now.depth == 0) {
      dw_load(&p);
      if (a.size.store != STORE_ADD) dw_clear(&p);
      continue;
    }
#endif
    for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
      engine_tile tile;
      dw_multiply(&p, &tile, panel);
#if DZ_SCALED
      DW_FOR_ELEMENTS(i, p.now.rows, j) {
        dw_put(&tile, i, j, dw_at(&tile, i, j) * (lane_f)(scale[a.at.scale]));
      }
#endif
      dw_store(&p, &tile, panel);
    }
  }
}

// out[h][v] (+)= sums[v][h], rounded once. Work-item (h or v, whichever is contiguous; the other).
kernel void write_w(global const float* sums, global ELEMENT(OUT_TYPE) * out, write_w_arguments a) {
#if OUT_LAYOUT == W_HV
  const long v = get_global_id(0);
  const long h = SECOND_INDEX;
#else
  const long h = get_global_id(0);
  const long v = SECOND_INDEX;
#endif
  if (h >= a.size.h_count || v >= a.size.v_count) return;
  const long at = a.at.out + h * a.size.h_stride + v * a.size.v_stride;
  const float value = sums[a.at.sums + v * a.size.sums_v_stride + h];
  STORE(OUT_TYPE, out, at, a.size.add ? LOAD(OUT_TYPE, out, at) + value : value);
}
