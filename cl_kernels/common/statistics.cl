// SPDX-License-Identifier: Apache-2.0
// The online log-sum-exp and what goes with it, lane by lane: everything is relative to a running
// maximum. Shared by every kernel that makes or merges statistics.
#ifndef TESSERA_STATISTICS_CL
#define TESSERA_STATISTICS_CL

#include "common/info.cl"
#include "common/lanes.cl"

// Functions take structs by pointer and return none: a returned struct becomes an intrinsic that
// Oclgrind does not know.
//
// WANT_CLASS, WANT_EXP, WANT_ARGMAX: the optional fields a kernel is compiled with.
typedef struct {
  lane_f max, sum, label_logit;
  lane_f class_logit, class_sum;
  lane_f argmax_value;
  lane_i argmax;
  lane_f exp_logit;
#if TARGETS == TARGETS_DENSE
  lane_f target_sum;
#if PARTIAL
  lane_f weighted_logit, weighted_sum;
#endif
#endif
} lane_stats;

// No logit seen yet. `first` is the index argmax has while every logit is -Inf.
static inline void stats_clear(lane_stats* s, int first) {
  s->max = s->label_logit = s->argmax_value = (lane_f)(-INFINITY);
#if TARGETS == TARGETS_DENSE
  s->label_logit = s->target_sum = (lane_f)(0.0f);
#if PARTIAL
  s->weighted_logit = s->weighted_sum = (lane_f)(0.0f);
#endif
#endif
  s->sum = s->class_logit = s->class_sum = s->exp_logit = (lane_f)(0.0f);
  s->argmax = (lane_i)(first);
}

// What logits are relative to: the maximum, or 0 while there is none but -Inf, so that a difference
// is never (-Inf) - (-Inf).
static inline lane_f stats_shift(lane_f maximum) {
  return maximum == (lane_f)(-INFINITY) ? (lane_f)(0.0f) : maximum;
}

// Makes what was summed relative to a new maximum, not below the old one. Where it stands still the
// factor is exactly 1: rounding residue there would add up over thousands of tiles.
static inline void stats_move(lane_stats* s, lane_f maximum) {
  const lane_f factor = s->max == maximum ? (lane_f)(1.0f) : lane_exp(s->max - maximum);
#if WANT_EXP || WANT_CLASS || TARGETS == TARGETS_DENSE
  const lane_f moved =
      s->max == maximum ? (lane_f)(0.0f) : stats_shift(s->max) - stats_shift(maximum);
#endif
#if WANT_EXP
  // Where the factor is 0 nothing was there, or nothing of it is left.
  s->exp_logit =
      factor == (lane_f)(0.0f) ? (lane_f)(0.0f) : factor * (s->exp_logit + moved * s->sum);
#endif
#if WANT_CLASS
  s->class_logit =
      s->class_sum == (lane_f)(0.0f) ? s->class_logit : s->class_logit + s->class_sum * moved;
#endif
#if TARGETS == TARGETS_DENSE
  s->label_logit =
      s->target_sum == (lane_f)(0.0f) ? s->label_logit : s->label_logit + s->target_sum * moved;
#if PARTIAL
  s->weighted_logit = s->weighted_sum == (lane_f)(0.0f)
                          ? s->weighted_logit
                          : s->weighted_logit + s->weighted_sum * moved;
#endif
#endif
  s->sum *= factor;
  s->max = maximum;
}

// Adds one logit, given as its difference to the shift. A class of weight 0 adds nothing, even
// where its logit is -Inf.
static inline void stats_add(lane_stats* s, lane_f difference, lane_f class_weight) {
  const lane_f e = lane_exp(difference);
  s->sum += e;
#if WANT_CLASS
  s->class_logit += class_weight == (lane_f)(0.0f) ? (lane_f)(0.0f) : class_weight * difference;
  s->class_sum += class_weight;
#endif
#if WANT_EXP
  s->exp_logit += e == (lane_f)(0.0f) ? (lane_f)(0.0f) : e * difference;
#endif
}

#if TARGETS == TARGETS_DENSE
// Adds the probability of the same word. One of 0 adds nothing, even where the logit is -Inf.
static inline void stats_add_target(lane_stats* s, lane_f difference, lane_f probability,
                                    lane_f class_weight) {
  s->label_logit += probability == (lane_f)(0.0f) ? (lane_f)(0.0f) : probability * difference;
  s->target_sum += probability;
#if PARTIAL
  const lane_f weighted = probability * class_weight;
  s->weighted_logit += weighted == (lane_f)(0.0f) ? (lane_f)(0.0f) : weighted * difference;
  s->weighted_sum += weighted;
#endif
}
#endif

// A block summed on its own (blocked sums keep long rows accurate) joins what was there; both are
// relative to the same maximum.
static inline void stats_join(lane_stats* s, const lane_stats* block) {
  s->sum += block->sum;
#if WANT_CLASS
  s->class_logit += block->class_logit;
  s->class_sum += block->class_sum;
#endif
#if WANT_EXP
  s->exp_logit += block->exp_logit;
#endif
#if TARGETS == TARGETS_DENSE
  s->label_logit += block->label_logit;
  s->target_sum += block->target_sum;
#if PARTIAL
  s->weighted_logit += block->weighted_logit;
  s->weighted_sum += block->weighted_sum;
#endif
#endif
}

static inline void stats_argmax(lane_stats* s, lane_f logit, lane_i index) {
#if WANT_ARGMAX
  const lane_i larger = logit > s->argmax_value;
  s->argmax_value = larger ? logit : s->argmax_value;
  s->argmax = larger ? index : s->argmax;
#endif
}

// Statistics in memory: [field][ld], at one row or at LANES rows side by side.
static inline void stats_store(const lane_stats* s, global float* at, long ld) {
  LANE_STORE(s->max, at + STAT_MAX * ld);
  LANE_STORE(s->sum, at + STAT_SUM * ld);
  LANE_STORE(s->label_logit, at + STAT_LABEL_LOGIT * ld);
#if WANT_CLASS
  LANE_STORE(s->class_logit, at + STAT_CLASS_LOGIT * ld);
  LANE_STORE(s->class_sum, at + STAT_CLASS_SUM * ld);
#endif
#if WANT_ARGMAX
  LANE_STORE(s->argmax_value, at + STAT_ARGMAX_VALUE * ld);
  LANE_STORE(AS_LANE_F(s->argmax), at + STAT_ARGMAX * ld);
#endif
#if WANT_EXP
  LANE_STORE(s->exp_logit, at + STAT_EXP_LOGIT * ld);
#endif
#if TARGETS == TARGETS_DENSE
  LANE_STORE(s->target_sum, at + STAT_TARGET_SUM * ld);
#if PARTIAL
  LANE_STORE(s->weighted_logit, at + STAT_WEIGHTED_LOGIT * ld);
  LANE_STORE(s->weighted_sum, at + STAT_WEIGHTED_SUM * ld);
#endif
#endif
}

static inline void stats_load(lane_stats* s, global const float* at, long ld) {
  stats_clear(s, 0);
  s->max = LANE_LOAD(at + STAT_MAX * ld);
  s->sum = LANE_LOAD(at + STAT_SUM * ld);
  s->label_logit = LANE_LOAD(at + STAT_LABEL_LOGIT * ld);
#if WANT_CLASS
  s->class_logit = LANE_LOAD(at + STAT_CLASS_LOGIT * ld);
  s->class_sum = LANE_LOAD(at + STAT_CLASS_SUM * ld);
#endif
#if WANT_ARGMAX
  s->argmax_value = LANE_LOAD(at + STAT_ARGMAX_VALUE * ld);
  s->argmax = AS_LANE_I(LANE_LOAD(at + STAT_ARGMAX * ld));
#endif
#if WANT_EXP
  s->exp_logit = LANE_LOAD(at + STAT_EXP_LOGIT * ld);
#endif
#if TARGETS == TARGETS_DENSE
  s->target_sum = LANE_LOAD(at + STAT_TARGET_SUM * ld);
#if PARTIAL
  s->weighted_logit = LANE_LOAD(at + STAT_WEIGHTED_LOGIT * ld);
  s->weighted_sum = LANE_LOAD(at + STAT_WEIGHTED_SUM * ld);
#endif
#endif
}

#endif
