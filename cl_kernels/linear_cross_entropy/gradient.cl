// SPDX-License-Identifier: Apache-2.0
// dz, the gradient of the products z, for a chunk of rows and a range of the vocabulary, as an
// operand whose k is the vocabulary: recomputed from x and w, or from logits that forward kept.
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
              a.size.h_count, a.size.v_count, a.size.v_block, a.size.panels);
  const int panel_end = p.panel_end;
  p.panel_end = max(panels_used(counted, panel_end), p.panel_begin);

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
        LOGITS_FOR_ROWS(i, now.rows) {
          const int v = v_first + logits_row_within(&p, i, now.rows);
          const lane_f z = logits_at(&tile, i, j);
          const lane_f logit =
              lane_logit(z + (lane_f)(BIAS_AT((long)v)), a.size.logit.scale, a.size.logit.cap);
          const lane_f g = targets_dlogit(&target, v, logit, (lane_f)(CLASS_AT((long)v)), &r);
          const lane_f value = lane_dz(g, logit, a.size.logit.scale, a.size.logit.cap);
          logits_put(&tile, i, j, value);
          add_to_bias(bias_lanes, now.m + logits_row(&p, i), value, panel == 0 && j == 0);
        }
      }
      logits_store_operand(&p, &tile, dz + a.at.dz, a.size.dz_columns, panel);
    }
  }
}

// From kept logits, for columns v_base .. v_base + v_count; dz may take their place. Panel by
// panel, as dz lies. Work-item (of a panel's, group of columns, group of panels).
kernel void gradient_of_kept(global const ELEMENT(CLASS_TYPE) * class_weight,
                             global const int* labels, global const int* info,
                             global const uchar* kept, global const float* coefficients,
                             global operand_word* dz, global float* values,
                             global const ELEMENT(TARGET_TYPE) * targets, global float* bias_lanes,
                             gradient_of_kept_arguments a) {
  bias_lanes += a.at.bias_lanes;
  const long v_begin = (long)get_global_id(1) * a.size.v_block;
  const long v_end = min(v_begin + a.size.v_block, a.size.v_count);
  const long counted = COUNTED_TOKENS;
  lane_targets target[ITEM_COLUMNS];
  lane_row rows[ITEM_COLUMNS];
  for (int panel = (int)get_group_id(2); panel < a.size.panels; panel += (int)get_num_groups(2)) {
    if ((long)panel * TILE_N >= counted) {
      clear_dz(dz + a.at.dz, a.size.dz_columns, panel, v_begin, v_end, bias_lanes, a.size.first);
      continue;
    }
    for (int n = 0; n < ITEM_COLUMNS; ++n) {
      const int column = item_column(n);
      OPEN_TARGETS(&target[n], panel * TILE_N + column, (int)(a.size.v_base + v_begin))
      load_lane_row(&rows[n], coefficients + a.at.coefficients, a.size.ld, panel * TILE_N + column);
    }
    for (long v = v_begin; v < v_end; ++v) {
      global const ushort* logits = KEPT_AT((long)panel, v);
      for (int n = 0; n < ITEM_COLUMNS; ++n) {
        const int column = item_column(n);
        global operand_word* to = dz + a.at.dz + operand_index(a.size.dz_columns, panel, v, column);
        PREFETCH(KEPT_AT((long)panel, v + 8) + 2 * column);
        const lane_f logit = KEPT_LOAD(logits, column);
        const lane_f g = targets_dlogit(&target[n], (int)(a.size.v_base + v), logit,
                                        (lane_f)(CLASS_AT(a.size.v_base + v)), &rows[n]);
        const lane_f value = lane_dz(g, logit, a.size.logit.scale, a.size.logit.cap);
        operand_store(value, to, v);
        add_to_bias(bias_lanes, v, value, a.size.first && panel == 0 && column == 0);
      }
    }
  }
}
