// SPDX-License-Identifier: Apache-2.0
// grad_w[h][v] (+)= sum over the rows of a chunk of x[row][h] * dz[row][v], as tiles [v][h]: A is
// dz, whose k are tokens here, B is x packed by columns. Written with the caller's type and strides
// when the chunk is all there is, else accumulated in f32.
#include "common/info.cl"
#include "linear/filtered.cl"
#include "linear/operands.cl"

#define PRODUCT PRODUCT_STORE
#define A_OPERAND 1
#ifndef OUT_TYPE
#define OUT_TYPE TYPE_F32
#endif
#ifndef OUT_LAYOUT
#define OUT_LAYOUT W_VH  // whose h, n here, is contiguous: ALONG_SECOND
#endif
#if OUT_LAYOUT == W_VH
#define OUT_ADDRESS(m) (to + (m)*a.size.v_stride)
#define OUT_IS_FETCHED (a.size.store != STORE_STREAMED)
#endif
#if FILTER
#define K_KEPT(k) COUNTS(ELEMENTS(k) / TILE_N, now.m, now.m + now.rows)
#define K_KEPT_STEP WORDS(TILE_N)
#endif
#include "engines/engine.cl"

#if FILTER
// Up to the last panel of tokens that counts, and 0 where none does.
#define TRIM_NEXT                                        \
  while (next.depth > 0) {                               \
    const int last = (next.depth - 1) / WORDS(TILE_N);   \
    if (COUNTS(last, next.m, next.m + next.rows)) break; \
    next.depth = last * WORDS(TILE_N);                   \
  }
#else
#define TRIM_NEXT
#endif

// Work-groups: (group of parts of the vocabulary, group of panels of h).
kernel ENGINE_KERNEL void grad_w(global const operand_word* dz, global const operand_word* x,
                                 global const int* info, global ELEMENT(OUT_TYPE) * out,
                                 global const int* counts, global float* scratch,
                                 grad_w_arguments a, engine_call e) {
  ENGINE_LOCALS
  ENGINE_SETUP(scratch + a.at.scratch)
  const int panel_begin = PANEL_BEGIN;
  const int panel_end = PANEL_END(a.size.panels);
  const long counted = COUNTED_TOKENS;
  const int tokens = counted <= 0 ? 0 : (int)min(counted, (long)a.size.row_count);
  const matrix_a matrix = {dz + a.at.dz, a.size.dz_columns, tokens};
  const matrix_b x_columns = {x + a.at.x, WORDS(a.size.row_count)};
  const tile_walk walk = {a.size.v_count, 0, e.parts, e.tile_m, WORDS(tokens), e.k_step, A_STRIP};
  a_tile now, next;
  walk_start(&walk, ENGINE_GROUP, &next);
  TRIM_NEXT
  ENGINE_LOAD
  while (next.rows > 0) {
    ENGINE_TURN
    now = next;
    walk_next(&walk, ENGINE_GROUPS, &next);
    TRIM_NEXT
    global ELEMENT(OUT_TYPE)* rows = out + a.at.out + now.m * a.size.v_stride;
#if FILTER
    if (now.depth == 0) {
      ENGINE_LOAD  // which the products that are left out would have done
      const int h0 = panel_begin * TILE_N;
      if (a.size.store != STORE_ADD) {
        ENGINE_CLEAR(rows + h0 * a.size.h_stride, a.size.v_stride, a.size.h_stride, now.rows,
                     min(panel_end * TILE_N, a.size.h_count) - h0)
      }
      continue;
    }
#endif
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      const int h0 = panel * TILE_N;
      global ELEMENT(OUT_TYPE)* to = rows + h0 * a.size.h_stride;
      c_tile tile = ENGINE_TILE(0);
      ENGINE_MULTIPLY(tile, x_columns, panel, panel - panel_begin, panel_end - panel_begin)
      ENGINE_STORE(tile, to, a.size.v_stride, a.size.h_stride, now.rows,
                   min(a.size.h_count - h0, TILE_N), a.size.store)
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
