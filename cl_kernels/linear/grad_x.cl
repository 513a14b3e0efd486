// SPDX-License-Identifier: Apache-2.0
// grad_x[row][h] += sum over a range of the vocabulary of dz[row][v] * w[h][v], as tiles [h][token]
// in f32: A is w transposed by its strides alone, B is dz as it was stored.
#include "common/info.cl"
#include "linear/operands.cl"

#define DX_USE USE_ACCUMULATE
#define DX_B_STORED 1
#define DX_A_TYPE W_TYPE
#if W_LAYOUT == W_VH
#define DX_A_LAYOUT ALONG_FIRST
#elif W_LAYOUT == W_HV
#define DX_A_LAYOUT ALONG_SECOND
#endif
#define DX_KEPT FILTER         // steps of the vocabulary begin at multiples of it (grad_x_product)
#include "engines/product.cl"  // as dx

// Work-groups: (group of parts of H, group of panels, part of the vocabulary's range). The
// vocabulary is walked in steps, so that packed w stays in the cache while all panels use it.
// `sums` has h_padded rows a panel, a multiple of what a tile writes.
kernel DX_KERNEL void grad_x(global const ELEMENT(W_TYPE) * w, global const operand_word* dz,
                             global const int* info, global float* sums, global const int* counts,
                             global float* scratch, grad_x_arguments a, engine_call e) {
  DX_LOCALS(memory);
  const long part = get_group_id(2);
  const long v_begin = part * a.size.v_part;
  const int v_count = (int)clamp(a.size.v_count - v_begin, 0L, a.size.v_part);
  const dx_a w_tiles = {w + a.at.w + v_begin * a.size.w.k_stride, a.size.w.m_stride,
                        a.size.w.k_stride, a.size.w.m_readable, v_count};
  const matrix_b dz_rows = {dz + a.at.dz + operand_index(a.size.dz_columns, 0, v_begin, 0),
                            a.size.dz_columns};
  dx_state p;
#if FILTER
  const kept_tiles kept = {counts + a.at.counts, a.size.filter_tiles, a.size.first};
  p.kept = kept;
#endif
  dx_open(&p, &memory, scratch + a.at.scratch, &e, &w_tiles, &dz_rows, a.size.h_count, 0,
          panels_used(COUNTED_TOKENS, a.size.panels));
  sums += a.at.sums + part * a.size.sums_part;
  while (dx_next(&p)) {
    for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
      dx_accumulate(&p, sums + sums_index(a.size.h_padded, panel, p.now.m), panel,
                    a.size.first && p.now.k == 0);
    }
  }
}
