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
  const lane_f log_q = (student * (lane_f)(inverse_temperature)-t->max_u) - t->log_sum_u;
  const lane_f log_p = (teacher * (lane_f)(inverse_temperature)-t->max_v) - t->log_sum_v;
  pair->q = lane_exp(log_q);
  pair->p = lane_exp(log_p);
  pair->log_ratio = log_q - log_p;
}

#if DIVERGENCE == JSD
// log(m / p), where m = p (beta + (1 - beta) q / p) is the mixture; the ratio that it is formed of
// is returned within the bounds beyond which one of the two is nothing beside the other, so that no
// logarithm is taken of a mixture of two tiny numbers.
static inline lane_f log_mixture(lane_pair* pair, float beta) {
  const lane_f most = (lane_f)(80.0f);
  lane_f r = pair->log_ratio;
  r = r > most ? most : r;
  r = r < -most ? -most : r;
  pair->log_ratio = r;
  return log(fma((lane_f)(1.0f - beta), lane_exp(r), (lane_f)(beta)));
}
#endif

#endif
