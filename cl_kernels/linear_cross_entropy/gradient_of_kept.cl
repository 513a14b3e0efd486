// SPDX-License-Identifier: Apache-2.0
// dz, the gradient of the products z, as gradient.cl says, from logits that forward kept.
#include "common/logit.cl"
#include "linear/operands.cl"
#include "linear_cross_entropy/arguments.h"

// For columns v_base .. v_base + v_count; dz may take the logits' place. Panel by panel, as dz
// lies; v_block is a multiple of OPERAND_BLOCK. Work-item (of a panel's, group of columns, group of
// panels).
kernel void gradient_of_kept(global const ELEMENT(CLASS_TYPE) * class_weight,
                             global const int* labels, global const int* info,
                             global const uchar* kept, global const float* coefficients,
                             global operand_word* dz, global float* values,
                             global const ELEMENT(TARGET_TYPE) * targets, global float* bias_lanes,
                             gradient_of_kept_arguments a) {
  OPERAND_SINK(sink, dz + a.at.dz, a.size.dz_columns);
  bias_lanes += a.at.bias_lanes;
  const long v_begin = (long)get_global_id(1) * a.size.v_block;
  const long v_end = min(v_begin + a.size.v_block, a.size.v_count);
  const long counted = COUNTED_TOKENS;
  lane_targets target[ITEM_COLUMNS];
  lane_row rows[ITEM_COLUMNS];
  for (int panel = (int)get_group_id(2); panel < a.size.panels; panel += (int)get_num_groups(2)) {
    if ((long)panel * TILE_N >= counted) {
      clear_dz(&sink, panel, v_begin, v_end, bias_lanes, a.size.first);
      continue;
    }
    for (int n = 0; n < ITEM_COLUMNS; ++n) {
      const int column = item_column(n);
      OPEN_TARGETS(&target[n], panel * TILE_N + column, (int)(a.size.v_base + v_begin))
      load_lane_row(&rows[n], coefficients + a.at.coefficients, a.size.ld, panel * TILE_N + column);
    }
    for (long v0 = v_begin, v1; v0 < v_end; v0 = v1) {
      v1 = operand_block_end(v0, v_end);
      for (long v = v0; v < v1; ++v) {
        global const ushort* logits = KEPT_AT((long)panel, v);
        for (int n = 0; n < ITEM_COLUMNS; ++n) {
          const int column = item_column(n);
          PREFETCH(KEPT_AT((long)panel, v + 8) + 2 * column);
          const lane_f logit = KEPT_LOAD(logits, column);
          const lane_f g = targets_dlogit(&target[n], (int)(a.size.v_base + v), logit,
                                          (lane_f)(CLASS_AT(a.size.v_base + v)), &rows[n]);
          const lane_f value = lane_dz(g, logit, a.size.logit.scale, a.size.logit.cap);
          operand_put(&sink, value, panel, v, column);
          add_to_bias(bias_lanes, v, value, a.size.first && panel == 0 && column == 0);
        }
      }
      operand_put_done(&sink, panel, v0, v1);
    }
  }
}
