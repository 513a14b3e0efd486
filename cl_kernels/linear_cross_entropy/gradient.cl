// SPDX-License-Identifier: Apache-2.0
// dz, the gradient of the products z, for a chunk of rows and a range of the vocabulary, as an
// operand whose k is the vocabulary, recomputed from x and w.
#include "common/logit.cl"
#include "linear/logits.cl"
#include "linear_cross_entropy/arguments.h"

// Work-groups: (group of slices, group of panels), as in forward.
kernel LOGITS_KERNEL void gradient(
    global const ELEMENT(W_TYPE) * w, global const ELEMENT(BIAS_TYPE) * bias,
    global const ELEMENT(CLASS_TYPE) * class_weight, global const operand_word* x,
    global const int* labels, global const int* info, global const float* coefficients,
    global operand_word* dz, global float* values, global const ELEMENT(TARGET_TYPE) * targets,
    global float* bias_lanes, global float* scratch, gradient_arguments a, engine_call e) {
  LOGITS_LOCALS(memory);
  bias_lanes += a.at.bias_lanes;
  const long counted = COUNTED_TOKENS;
  logits_state p;
  open_logits(&p, &memory, scratch + a.at.scratch, &e, w + a.at.w, &a.size.w, x + a.at.x,
              a.size.h_count, a.size.v_count, a.size.v_block, panels_used(counted, a.size.panels));
  const int panel_end = min(p.panel_begin + e.panels_per_group, a.size.panels);

  while (logits_next(&p)) {
    const a_tile now = p.now;
    for (int panel = p.panel_begin; panel < panel_end; ++panel) {
      // Panels without a row that counts (their number may be known to the device only) are 0.
      if ((long)panel * TILE_N >= counted) {
        logits_store_operand(&p, 0, dz + a.at.dz, a.size.dz_columns, panel);
        for (int m = 0; panel == 0 && m < now.rows; ++m) {
          add_to_bias(bias_lanes, now.m + m, (lane_f)(0.0f), 1);
        }
        continue;
      }
      engine_tile tile;
      logits_multiply(&p, &tile, panel);
      if (!LOGITS_WHOLE_K && !logits_is_complete(&p)) continue;
      LOGITS_FOR_COLUMNS(j) {
        const int row = panel * TILE_N + logits_column(&p, j);
        const int v_first = (int)(a.size.v_base + now.m);
        lane_targets target;
        OPEN_TARGETS(&target, row, v_first)
        lane_row r;
        load_lane_row(&r, coefficients + a.at.coefficients, a.size.ld, row);
#if LANES == 1 && TARGETS == TARGETS_LABELS
        const int label_ahead = target.label - v_first - logits_row(&p, 0);
#endif
        LOGITS_FOR_ROWS(i, now.rows) {
          const int v = v_first + logits_row_within(&p, i, now.rows);
          const lane_f logit = lane_logit(BIASED(logits_at(&tile, i, j), (long)v),
                                          a.size.logit.scale, a.size.logit.cap);
#if LANES == 1 && TARGETS == TARGETS_LABELS
          const float g =
              lane_dlogit(logit, logits_ahead(i) == label_ahead, r.y, CLASS_AT((long)v), &r);
#else
          const lane_f g = targets_dlogit(&target, v, logit, (lane_f)(CLASS_AT((long)v)), &r);
#endif
          const lane_f value = lane_dz(g, logit, a.size.logit.scale, a.size.logit.cap);
          logits_put(&tile, i, j, value);
          add_to_bias(bias_lanes, now.m + logits_row(&p, i), value, panel == 0 && j == 0);
        }
      }
      logits_store_operand(&p, &tile, dz + a.at.dz, a.size.dz_columns, panel);
    }
  }
}
