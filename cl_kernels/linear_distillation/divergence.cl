// SPDX-License-Identifier: Apache-2.0
// What the logits of a student and its teacher come to, LANES rows side by side: sums over a part
// of the vocabulary, and, once rows are known as a whole, the probabilities of a word.
#ifndef TESSERA_DIVERGENCE_CL
#define TESSERA_DIVERGENCE_CL

#include "common/statistics.cl"
#include "linear_distillation/arguments.h"

#ifndef DIVERGENCE
#define DIVERGENCE JSD  // which has every kernel
#endif

// x where the probability is not 0: a word of probability 0 adds nothing, whatever the factor.
static inline lane_f unless_zero(lane_f x, lane_f probability) {
  return probability == (lane_f)(0.0f) ? (lane_f)(0.0f) : x;
}

// A logit over the temperature, rounded. A maximum is one of these: a compiler that left out the
// rounding before it subtracts the maximum would find probabilities that do not add up to 1.
static inline lane_f tempered(lane_f logit, float inverse_temperature) {
#pragma OPENCL FP_CONTRACT OFF
  return logit * (lane_f)(inverse_temperature);
}

// Of LANES rows, over the columns seen so far: SUM_*.
typedef struct {
  lane_f max_u, max_v, u, v, cross, exp_v;
} lane_sums;

static inline void sums_clear(lane_sums* s) {
  s->max_u = s->max_v = (lane_f)(-INFINITY);
  s->u = s->v = s->cross = s->exp_v = (lane_f)(0.0f);
}

// Makes what was summed relative to new maxima, not below the old ones. Where they stand still
// nothing is rounded.
static inline void sums_move(lane_sums* s, lane_f max_u, lane_f max_v) {
  const lane_i same_u = s->max_u == max_u;
  const lane_i same_v = s->max_v == max_v;
  const lane_f zero = (lane_f)(0.0f);
  const lane_f factor_u = same_u ? (lane_f)(1.0f) : lane_exp(s->max_u - max_u);
  const lane_f factor_v = same_v ? (lane_f)(1.0f) : lane_exp(s->max_v - max_v);
  const lane_f moved_u = same_u ? zero : stats_shift(s->max_u) - stats_shift(max_u);
  const lane_f moved_v = same_v ? zero : stats_shift(s->max_v) - stats_shift(max_v);
#if DIVERGENCE == REVERSE_KL
  const lane_f factor = factor_u, own = s->u, moved = moved_u - moved_v;
#else
  const lane_f factor = factor_v, own = s->v, moved = moved_v - moved_u;
#endif
  // Where a factor is 0 nothing was there, or nothing of it is left.
  s->cross = factor == zero ? zero : factor * (own == zero ? s->cross : s->cross + moved * own);
  s->exp_v = factor_v == zero ? zero : factor_v * (s->exp_v + moved_v * s->v);
  s->u *= factor_u;
  s->v *= factor_v;
  s->max_u = max_u;
  s->max_v = max_v;
}

// What LANES rows come to: TERM_*.
typedef struct {
  lane_f max_u, log_sum_u, max_v, log_sum_v, relative, factor;
} lane_terms;

static inline void load_terms(lane_terms* t, global const float* terms, long ld) {
  t->max_u = LANE_LOAD(terms + TERM_MAX_U * ld);
  t->log_sum_u = LANE_LOAD(terms + TERM_LOG_SUM_U * ld);
  t->max_v = LANE_LOAD(terms + TERM_MAX_V * ld);
  t->log_sum_v = LANE_LOAD(terms + TERM_LOG_SUM_V * ld);
  t->relative = LANE_LOAD(terms + TERM_RELATIVE * ld);
  t->factor = LANE_LOAD(terms + TERM_FACTOR * ld);
}

// The student's probability q, the teacher's p, and log(q / p).
typedef struct {
  lane_f q, p, log_ratio;
} lane_pair;

static inline void probabilities(lane_pair* pair, lane_f student, lane_f teacher,
                                 float inverse_temperature, const lane_terms* t) {
  const lane_f u = tempered(student, inverse_temperature);
  const lane_f v = tempered(teacher, inverse_temperature);
  const lane_f log_q = lane_at_most_0(u - t->max_u) - t->log_sum_u;
  const lane_f log_p = lane_at_most_0(v - t->max_v) - t->log_sum_v;
  pair->q = lane_exp(log_q);
  pair->p = lane_exp(log_p);
  pair->log_ratio = log_q - log_p;
}

#if DIVERGENCE == JSD
// log(p / m) and log(q / m), where m = beta p + (1 - beta) q is the mixture. Each is formed of
// 1 + c (e^d - 1), where d is a log-ratio of the two: formed as a difference of logarithms, words
// that both find as likely would lose all their digits.
typedef struct {
  lane_f of_p, of_q;
} lane_mixture;

static inline void mixture_of(lane_mixture* to, const lane_pair* pair, float beta) {
  // Beyond these bounds one of the two is nothing beside the other.
  const lane_f most = (lane_f)(80.0f);
  lane_f r = pair->log_ratio;
  r = r > most ? most : r;
  r = r < -most ? -most : r;
  const lane_i q_is_larger = r > (lane_f)(0.0f);
  const lane_f down = q_is_larger ? -r : r;
  const lane_f ratio = lane_exp(down);  // of the smaller to the larger
  const lane_f less = expm1(down);
  const lane_f p_share = (lane_f)(beta), q_share = (lane_f)(1.0f - beta);
  const lane_f of_smaller = q_is_larger ? p_share : q_share;
  const lane_f of_larger = q_is_larger ? q_share : p_share;
  // Far from 1 the sum of both shares is accurate; the rounding of 1 - beta would be all that is
  // left of a small beta in the other form.
  const lane_f step = of_smaller * less;
  const lane_f from_larger =
      step > (lane_f)(-0.5f) ? -log1p(step) : -log(fma(of_smaller, ratio, of_larger));
  const lane_f from_smaller = -log1p(-of_larger * less / ratio);
  to->of_p = unless_zero(q_is_larger ? from_smaller : from_larger, pair->p);
  to->of_q = unless_zero(q_is_larger ? from_larger : from_smaller, pair->q);
}
#endif

#endif
