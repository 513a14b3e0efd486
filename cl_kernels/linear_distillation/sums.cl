// SPDX-License-Identifier: Apache-2.0
// Looks at the logits of a student and its teacher, which lie beside each other for a chunk of rows
// and a range of the vocabulary. The first look leaves what both softmaxes and a KL are made of;
// jsd takes a second one, because the mixture needs both.
#include "engines/operand.cl"
#include "linear/operands.cl"
#include "linear_distillation/divergence.cl"

// Columns that are summed on their own before they join what was there: long rows stay accurate,
// and a panel of both stays in the first-level cache for two passes.
#define BLOCK 32

// Work-item (of a panel's, slice of the range).
kernel void divergence_sums(global const int* info, global const uchar* kept,
                            global const uchar* teacher, global const float* terms,
                            global float* sums, divergence_sums_arguments a) {
  const long v_begin = (long)get_global_id(1) * a.size.v_block;
  const long v_end = min(v_begin + a.size.v_block, a.size.v_count);
  const float inverse = a.size.inverse_temperature;
  const int used = panels_used(COUNTED_TOKENS, a.size.panels);
  const long slice = a.size.first_slice + (long)get_global_id(1);
  for (int panel = 0; panel < used; ++panel) {
    lane_sums of[ITEM_COLUMNS];
    for (int n = 0; n < ITEM_COLUMNS; ++n) sums_clear(&of[n]);
    for (long v0 = v_begin; v0 < v_end; v0 += BLOCK) {
      const long v1 = min(v0 + BLOCK, v_end);
      for (int n = 0; n < ITEM_COLUMNS; ++n) {
        const int column = item_column(n);
        lane_sums s = of[n];
        lane_f max_u = s.max_u, max_v = s.max_v;
        for (long v = v0; v < v1; ++v) {
          const lane_f x = tempered(KEPT_LOAD(KEPT_AT((long)panel, v), column), inverse);
          const lane_f y = tempered(KEPT_LOAD(KEPT_OF(teacher, (long)panel, v), column), inverse);
          max_u = x > max_u ? x : max_u;
          max_v = y > max_v ? y : max_v;
        }
        sums_move(&s, max_u, max_v);
        const lane_f shift_u = stats_shift(max_u), shift_v = stats_shift(max_v);
        lane_f sum_u = (lane_f)(0.0f), sum_v = sum_u, cross = sum_u, exp_v = sum_u;
        for (long v = v0; v < v1; ++v) {
          const lane_f x = tempered(KEPT_LOAD(KEPT_AT((long)panel, v), column), inverse) - shift_u;
          const lane_f y =
              tempered(KEPT_LOAD(KEPT_OF(teacher, (long)panel, v), column), inverse) - shift_v;
          const lane_f eu = lane_exp(x), ev = lane_exp(y);
          sum_u += eu;
          sum_v += ev;
          exp_v += unless_zero(ev * y, ev);
#if DIVERGENCE == REVERSE_KL
          cross += unless_zero(eu * (x - y), eu);
#else
          cross += unless_zero(ev * (y - x), ev);
#endif
        }
        s.u += sum_u;
        s.v += sum_v;
        s.cross += cross;
        s.exp_v += exp_v;
        of[n] = s;
      }
    }
    for (int n = 0; n < ITEM_COLUMNS; ++n) {
      const int column = item_column(n);
      const long ld = a.size.ld;
      global float* at = sums + a.at.sums + slice * SUM_FIELDS * ld + panel * TILE_N + column;
      LANE_STORE(of[n].max_u, at + SUM_MAX_U * ld);
      LANE_STORE(of[n].max_v, at + SUM_MAX_V * ld);
      LANE_STORE(of[n].u, at + SUM_U * ld);
      LANE_STORE(of[n].v, at + SUM_V * ld);
      LANE_STORE(of[n].cross, at + SUM_CROSS * ld);
      LANE_STORE(of[n].exp_v, at + SUM_EXP_V * ld);
    }
  }
}

#if DIVERGENCE == JSD
// The second look, whose rows are known: sums of the divergence, of KL(q||m) and of q. Word by word
// the divergence is at least 0, so that its sum loses no digits. Work-items as above.
kernel void mixture_sums(global const int* info, global const uchar* kept,
                         global const uchar* teacher, global const float* terms, global float* sums,
                         mixture_sums_arguments a) {
  const long v_begin = (long)get_global_id(1) * a.size.v_block;
  const long v_end = min(v_begin + a.size.v_block, a.size.v_count);
  const int step = (int)get_global_size(0) * LANES;
  const int used = panels_used(COUNTED_TOKENS, a.size.panels);
  const long slice = a.size.first_slice + (long)get_global_id(1);
  for (int panel = 0; panel < used; ++panel) {
    for (int column = (int)get_global_id(0) * LANES; column < TILE_N; column += step) {
      const int row = panel * TILE_N + column;
      lane_terms t;
      load_terms(&t, terms + a.at.terms + a.size.chunk_begin + row, a.size.term_ld);
      lane_f both = (lane_f)(0.0f), from_q = both, sum_q = both;
      for (long v0 = v_begin; v0 < v_end; v0 += BLOCK) {
        const long v1 = min(v0 + BLOCK, v_end);
        lane_f block_both = (lane_f)(0.0f), block_q = block_both, block_sum = block_both;
        for (long v = v0; v < v1; ++v) {
          lane_pair pair;
          probabilities(&pair, KEPT_LOAD(KEPT_AT((long)panel, v), column),
                        KEPT_LOAD(KEPT_OF(teacher, (long)panel, v), column),
                        a.size.inverse_temperature, &t);
          lane_mixture m;
          mixture_of(&m, &pair, a.size.beta);
          const lane_f from_p = (lane_f)(a.size.beta) * (pair.p * m.of_p);
          block_both += fma((lane_f)(1.0f - a.size.beta), pair.q * m.of_q, from_p);
          block_q += pair.q * m.of_q;
          block_sum += pair.q;
        }
        both += block_both;
        from_q += block_q;
        sum_q += block_sum;
      }
      const long ld = a.size.ld;
      global float* at = sums + a.at.sums + slice * SUM_FIELDS * ld + row;
      LANE_STORE(both, at + MIX_BOTH * ld);
      LANE_STORE(from_q, at + MIX_Q * ld);
      LANE_STORE(sum_q, at + MIX_SUM_Q * ld);
    }
  }
}
#endif
