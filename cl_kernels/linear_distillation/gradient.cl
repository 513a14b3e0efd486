// SPDX-License-Identifier: Apache-2.0
// dz, the gradient of the student's products z, for a chunk of rows and a range of the vocabulary,
// as an operand whose k is the vocabulary: the cross-entropy's share and the divergence's, from the
// logits of both. It may take the place of the student's.
#include "common/logit.cl"
#include "engines/operand.cl"
#include "linear/operands.cl"
#include "linear_distillation/divergence.cl"

// d divergence / d u.
static inline lane_f divergence_slope(const lane_pair* pair, const lane_terms* t, float beta) {
#if DIVERGENCE == FORWARD_KL
  return pair->q - pair->p;
#elif DIVERGENCE == REVERSE_KL
  // A difference within the rounding of both is 0: the gradient of a student that is sure of its
  // word is, and the rounding of a large divergence would stand in its place.
  const lane_f far = pair->log_ratio - t->relative;
  const lane_f rounding = (lane_f)(0x1p-20f) * fabs(t->relative);
  return unless_zero(fabs(far) <= rounding ? (lane_f)(0.0f) : pair->q * far, pair->q);
#else
  lane_mixture m;
  mixture_of(&m, pair, beta);
  return unless_zero((lane_f)(1.0f - beta) * (pair->q * (m.of_q - t->relative)), pair->q);
#endif
}

// Panel by panel, as dz lies; v_block is a multiple of OPERAND_BLOCK. Work-item (of a panel's,
// group of columns, group of panels).
kernel void distill_gradient(global const int* labels, global const int* info,
                             global const uchar* kept, global const uchar* teacher,
                             global const float* coefficients, global const float* terms,
                             global operand_word* dz, global float* values,
                             global const ELEMENT(TARGET_TYPE) * targets, global float* bias_lanes,
                             distill_gradient_arguments a) {
  OPERAND_SINK(sink, dz + a.at.dz, a.size.dz_columns);
  bias_lanes += a.at.bias_lanes;
  const long v_begin = (long)get_global_id(1) * a.size.v_block;
  const long v_end = min(v_begin + a.size.v_block, a.size.v_count);
  const long counted = COUNTED_TOKENS;
  lane_targets target[ITEM_COLUMNS];
  for (int panel = (int)get_group_id(2); panel < a.size.panels; panel += (int)get_num_groups(2)) {
    if ((long)panel * TILE_N >= counted) {
      clear_dz(&sink, panel, v_begin, v_end, bias_lanes, 1);
      continue;
    }
    for (int n = 0; n < ITEM_COLUMNS; ++n) {
      const int column = item_column(n);
      OPEN_TARGETS(&target[n], panel * TILE_N + column, (int)(a.size.v_base + v_begin))
    }
    for (long v0 = v_begin, v1; v0 < v_end; v0 = v1) {
      v1 = operand_block_end(v0, v_end);
      for (long v = v0; v < v1; ++v) {
        for (int n = 0; n < ITEM_COLUMNS; ++n) {
          const int column = item_column(n);
          const int row = panel * TILE_N + column;
          lane_row r;
          load_lane_row(&r, coefficients + a.at.coefficients, a.size.ld, row);
          lane_terms t;
          load_terms(&t, terms + a.at.terms + a.size.chunk_begin + row, a.size.term_ld);
          const lane_f logit = KEPT_LOAD(KEPT_AT((long)panel, v), column);
          lane_pair pair;
          probabilities(&pair, logit, KEPT_LOAD(KEPT_OF(teacher, (long)panel, v), column),
                        a.size.inverse_temperature, &t);
          const lane_f slope = divergence_slope(&pair, &t, a.size.beta);
          const int v_call = (int)(a.size.v_base + v);
          lane_f g = targets_dlogit(&target[n], v_call, logit, (lane_f)(1.0f), &r);
          // A term whose factor is 0 is absent; rows that pad a panel have that factor.
          g += t.factor == (lane_f)(0.0f) ? (lane_f)(0.0f) : t.factor * slope;
          const lane_f value = lane_dz(g, logit, a.size.logit.scale, a.size.logit.cap);
          operand_put(&sink, value, panel, v, column);
          add_to_bias(bias_lanes, v, value, panel == 0 && column == 0);
        }
      }
      operand_put_done(&sink, panel, v0, v1);
    }
  }
}
