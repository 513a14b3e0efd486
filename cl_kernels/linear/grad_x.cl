// SPDX-License-Identifier: Apache-2.0
// grad_x[row][h] += sum over a range of the vocabulary of dz[row][v] * w[h][v], as tiles [h][token]
// in f32: A is w transposed by its strides alone, B is dz as it was stored.
#include "common/info.cl"
#include "linear/filtered.cl"
#include "linear/operands.cl"

#define PRODUCT PRODUCT_ACCUMULATE
#define B_STORED 1
#define A_TYPE W_TYPE
#if W_LAYOUT == W_VH
#define A_LAYOUT ALONG_FIRST
#elif W_LAYOUT == W_HV
#define A_LAYOUT ALONG_SECOND
#endif
#if FILTER
// Steps of the vocabulary begin at multiples of FILTER (grad_x_product).
#define K_KEPT(k_) COUNTS(panel, ELEMENTS(now.k + (k_)), ELEMENTS(now.k + (k_)) + 1)
#define K_KEPT_STEP WORDS(FILTER)
#endif
#include "engines/engine.cl"

#if FILTER
// Whether any panel of tokens has a tile that counts in the
// tile `next`, or sums that it must clear.
#define NEXT_WANTED                                                                    \
  (next.rows == 0 || (a.size.first && next.k == 0) ||                                  \
   any_panel_counts(counts + a.at.counts, a.size.filter_tiles, panel_begin, panel_end, \
                    ELEMENTS(next.k), min(ELEMENTS(next.k + next.depth), (long)a.size.v_count)))
static inline int any_panel_counts(global const int* counts, int tiles, int begin, int end,
                                   long v_begin, long v_end) {
  int any = 0;
  for (int panel = begin; panel < end; ++panel) {
    any |= any_counts(counts + (long)panel * tiles, v_begin, v_end);
  }
  return any;
}
#else
#define NEXT_WANTED 1
#endif

// Work-groups: (group of parts of H, group of panels, part of the vocabulary's range). The
// vocabulary is walked in steps, so that packed w stays in the cache while all panels use it.
// `sums` has h_padded rows a panel, a multiple of what a tile writes.
kernel ENGINE_KERNEL void grad_x(global const ELEMENT(W_TYPE) * w, global const operand_word* dz,
                                 global const int* info, global float* sums,
                                 global const int* counts, global float* scratch,
                                 grad_x_arguments a, engine_call e) {
  ENGINE_LOCALS
  ENGINE_SETUP(scratch + a.at.scratch)
  const int panel_begin = PANEL_BEGIN;
  const int panel_end = PANEL_END(panels_used(COUNTED_TOKENS, a.size.panels));
  if (panel_begin >= panel_end) return;
  const long v_begin = BATCH_INDEX * a.size.v_part;
  const int v_count = (int)clamp(a.size.v_count - v_begin, 0L, a.size.v_part);
  const matrix_a matrix = {w + a.at.w + v_begin * a.size.w.k_stride, a.size.w.m_stride,
                           a.size.w.k_stride, a.size.w.m_readable, v_count};
  const matrix_b dz_rows = {dz + a.at.dz + operand_index(a.size.dz_columns, 0, v_begin, 0),
                            a.size.dz_columns};
  const tile_walk walk = {a.size.h_count, 0, e.parts, e.tile_m, WORDS(v_count), e.k_step, A_STRIP};
  sums += a.at.sums + BATCH_INDEX * a.size.sums_part;
  a_tile now, next;
  walk_start(&walk, ENGINE_GROUP, &next);
  ENGINE_LOAD
  while (next.rows > 0) {
    ENGINE_TURN
    now = next;
    do {
      walk_next(&walk, ENGINE_GROUPS, &next);
    } while (!NEXT_WANTED);
    const int fresh = a.size.first && now.k == 0;
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      ENGINE_ACCUMULATE(sums + sums_index(a.size.h_padded, panel, now.m), dz_rows, panel,
                        panel - panel_begin, panel_end - panel_begin, fresh)
    }
  }
}
