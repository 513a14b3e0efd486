// SPDX-License-Identifier: Apache-2.0
// dz, the gradient of the products z, for a chunk of rows and a range of the vocabulary, as an
// operand whose k is the vocabulary: recomputed from x and w, or from logits that forward kept.
#include "common/logit.cl"
#include "linear_cross_entropy/logits.cl"

#define DZ_AT(panel, v, column) OPERAND_AT(dz + a.at.dz, a.size.v_count, panel, v, column)

// Work-groups: (group of slices, group of panels), as in forward.
kernel ENGINE_KERNEL void gradient(global const ELEMENT(W_TYPE) * w,
                                   global const ELEMENT(BIAS_TYPE) * bias,
                                   global const ELEMENT(CLASS_TYPE) * class_weight,
                                   global const float* x, global const int* labels,
                                   global const int* info, global const float* coefficients,
                                   global float* dz, global float* scratch, gradient_arguments a,
                                   engine_call e) {
  ENGINE_LOCALS
  ENGINE_SETUP(scratch + a.at.scratch)
  const long counted = COUNTED_TOKENS;
  const int panel_begin = PANEL_BEGIN;
  const int panel_end = PANEL_END(a.size.panels);
  const int used = panels_used(counted, panel_end);

  LOGITS_WALK
  while (next.rows > 0) {
    NEXT_TILE
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      // Panels without a row that counts (their number may be known to the device only) are 0.
      if ((long)panel * TILE_N >= counted) {
        FOR_ELEMENTS(m, now.rows, column) {
          OPERAND_STORE((lane_f)(0.0f), DZ_AT(panel, now.m + m, column));
        }
        continue;
      }
      c_tile tile = ENGINE_TILE(panel - panel_begin);
      ENGINE_MULTIPLY(tile, x_rows, panel, panel - panel_begin, used - panel_begin)
      if (!TILE_COMPLETE) continue;
      FOR_COLUMNS(column) {
        const int row = panel * TILE_N + column;
        const lane_i label = LANE_LOAD(labels + a.at.labels + a.size.chunk_begin + row);
        lane_row r;
        load_lane_row(&r, coefficients + a.at.coefficients, a.size.ld, row);
        FOR_ROWS(m, now.rows) {
          const int v = (int)(a.size.v_base + now.m) + m;
          const lane_f z = TILE_AT(tile, m, column);
          const lane_f logit =
              lane_logit(z + (lane_f)(BIAS_AT((long)v)), a.size.logit.scale, a.size.logit.cap);
          const lane_f g =
              lane_dlogit(logit, label == (lane_i)(v), (lane_f)(CLASS_AT((long)v)), &r);
          OPERAND_STORE(lane_dz(g, logit, a.size.logit.scale, a.size.logit.cap),
                        DZ_AT(panel, now.m + m, column));
        }
      }
    }
  }
}
#undef DZ_AT

// From kept logits, for columns v_base .. v_base + v_count; dz may
// take their place. Columns outside and tokens inside, as logits lie
// that wait in grad_w. Work-item (of a panel's, group of columns).
kernel void gradient_of_kept(global const ELEMENT(CLASS_TYPE) * class_weight,
                             global const int* labels, global const int* info,
                             global const uchar* kept, global const float* coefficients,
                             global float* dz, gradient_of_kept_arguments a) {
  const long v_begin = (long)get_global_id(1) * a.size.v_block;
  const long v_end = min(v_begin + a.size.v_block, a.size.v_count);
  const int step = (int)get_global_size(0) * LANES;
  const long counted = COUNTED_TOKENS;
  for (long v = v_begin; v < v_end; ++v) {
    for (int panel = 0; panel < a.size.panels; ++panel) {
      global const ushort* logits = KEPT_AT((long)panel, v);
      for (int column = (int)get_global_id(0) * LANES; column < TILE_N; column += step) {
        const int row = panel * TILE_N + column;
        global float* to = OPERAND_AT(dz + a.at.dz, a.size.dz_columns, panel, v, column);
        if ((long)panel * TILE_N >= counted) {
          OPERAND_STORE((lane_f)(0.0f), to);
          continue;
        }
        const lane_i label = LANE_LOAD(labels + a.at.labels + a.size.chunk_begin + row);
        lane_row r;
        load_lane_row(&r, coefficients + a.at.coefficients, a.size.ld, row);
        const lane_f logit = KEPT_LOAD(logits, column);
        const lane_f g = lane_dlogit(logit, label == (lane_i)((int)(a.size.v_base + v)),
                                     (lane_f)(CLASS_AT(a.size.v_base + v)), &r);
        OPERAND_STORE(lane_dz(g, logit, a.size.logit.scale, a.size.logit.cap), to);
      }
    }
  }
}

// sums[v] (+)= the sum of dz over the rows of a chunk, panel by panel and lane by lane in order.
// Work-item (v).
kernel void sum_bias(global const float* dz, global float* sums, sum_bias_arguments a) {
  const long v = get_global_id(0);
  if (v >= a.size.v_count) return;
  float total = 0.0f;
  for (int panel = 0; panel < a.size.panels; ++panel) {
    float part = 0.0f;
    for (int column = 0; column < TILE_N; ++column) {
      part += *OPERAND_AT(dz + a.at.dz, a.size.dz_columns, panel, v, column);
    }
    total += part;
  }
  global float* to = sums + a.at.sums + v;
  *to = a.size.first ? total : *to + total;
}
