// SPDX-License-Identifier: Apache-2.0
// Statistics of logits that exist, row by row: lanes lie along the vocabulary here, so that memory
// is read as it lies, and are merged at the end of a slice. A group is one work-item on a CPU,
// GROUP of them elsewhere.
#ifndef TESSERA_SLICE_CL
#define TESSERA_SLICE_CL

#include "common/logit.cl"
#include "common/statistics.cl"
#include "softmax_cross_entropy/columns.cl"
#include "softmax_cross_entropy/stream.cl"

#if STREAMS && !WANT_CLASS && !WANT_EXP && !WANT_ARGMAX
#define STREAMS_STATISTICS 1
// The maximum may run ahead of what differences are taken to by this much before sums are moved:
// rare with real logits, and exp(8) * V is far from overflow.
#define MOST_DIFFERENCE 8.0f

#define STREAM_SUM(LOAD_LANES, ADD_ONE)                                  \
  for (int v = 0; v < STREAM_BLOCK; v += LANE_SPAN) {                    \
    const lane_f logit = SCALE_LOGIT(LOAD_LANES(p + v));                 \
    top = logit > top ? logit : top;                                     \
    lane_f d = logit - shift;                                            \
    d = d < (lane_f)(LEAST_DIFFERENCE) ? (lane_f)(LEAST_DIFFERENCE) : d; \
    lane_f power, factor;                                                \
    lane_exp_parts(d, &power, &factor);                                  \
    ADD_ONE                                                              \
  }
#define ADD_FORGET sum = fma(power, factor, sum);
#define ADD_KEEP                                          \
  const lane_f e = power * factor;                        \
  STORE_ANYWHERE(local, e, keep + v * LANES / LANE_SPAN); \
  sum += e;

// Adds the whole blocks of [begin, end) to the statistics, whose s->max is the reference here and
// `top` the maximum so far; returns where the rest begins. `row` is the row's first column.
#define DEFINE_STREAM_BLOCKS(name, ADD_ONE, KEEPING)                                             \
  static inline long name(lane_stats* s, lane_f* top_, global const ELEMENT(LOGITS_TYPE) * row,  \
                          long begin, long end, float scale, kept_columns* kept) {               \
    lane_f top = *top_;                                                                          \
    while (end - begin >= STREAM_BLOCK) {                                                        \
      global const ELEMENT(LOGITS_TYPE)* p = row + begin;                                        \
      local float* keep = KEEPING ? kept->memory + begin : 0;                                    \
      const lane_f shift = stats_shift(s->max);                                                  \
      lane_f sum = (lane_f)(0.0f);                                                               \
      STREAM_SUM(LOAD_EVEN, ADD_ONE)                                                             \
      STREAM_SUM_ODD(ADD_ONE)                                                                    \
      /* Also true where the reference is still -Inf and a finite logit has come. */             \
      if (any(top > s->max + (lane_f)(MOST_DIFFERENCE))) {                                       \
        stats_move(s, top);                                                                      \
        /* What was kept is relative to another reference, and formed again for the gradient. */ \
        if (KEEPING) kept->from = begin;                                                         \
      } else {                                                                                   \
        s->sum += sum;                                                                           \
        begin += STREAM_BLOCK;                                                                   \
      }                                                                                          \
    }                                                                                            \
    *top_ = top;                                                                                 \
    return begin;                                                                                \
  }
#ifdef LOAD_ODD
#define STREAM_SUM_ODD(ADD_ONE) \
  keep += STREAM_BLOCK / 2;     \
  STREAM_SUM(LOAD_ODD, ADD_ONE)
#else
#define STREAM_SUM_ODD(ADD_ONE)
#endif
DEFINE_STREAM_BLOCKS(stream_blocks, ADD_FORGET, 0)
#if KEEPS
DEFINE_STREAM_BLOCKS(stream_kept_blocks, ADD_KEEP, 1)
#endif

static inline long stream_statistics(lane_stats* s, global const ELEMENT(LOGITS_TYPE) * row,
                                     long begin, long end, float scale, kept_columns* kept) {
  if (end - begin < STREAM_BLOCK) return begin;
  lane_f top = s->max;
  for (int v = 0; v < STREAM_BLOCK; v += LANES) {
    const lane_f logit = SCALE_LOGIT(LANE_LOAD_TYPE(LOGITS_TYPE, row + begin + v));
    top = logit > top ? logit : top;
  }
  stats_move(s, top);
#if KEEPS
  begin =
      stream_kept_blocks(s, &top, row, begin, end < kept->count ? end : kept->count, scale, kept);
  kept->to = begin;
  kept->shift = stats_shift(s->max);
#endif
  begin = stream_blocks(s, &top, row, begin, end, scale, kept);
  stats_move(s, top);
  // A lane of nothing but -Inf has summed what stands for 0. NaN compares false and stays.
  const lane_i empty = (top == (lane_f)(-INFINITY)) & (s->sum < (lane_f)(1.0f));
  s->sum = empty ? (lane_f)(0.0f) : s->sum;
  return begin;
}
#endif

// Columns that are looked at twice (for the maximum, then for the sums): a CPU finds them in its
// first-level cache, a GPU keeps the logits in registers, 32 of each work-item.
#if GROUP > 1
#define BLOCK_STEPS (32 / LANES)
#define LOAD_BLOCK            \
  lane_f logits[BLOCK_STEPS]; \
  load_block(row, begin, end, logits);
#define BLOCK_COLUMN(step) (FIRST_COLUMN(begin, row->apart) + (step)*STEP)
#define BLOCK_LOGIT(step) logits[step]
// No break: the loop would not be unrolled, and the logits be in memory.
#define FOR_BLOCK(step) \
  GROUP_UNROLLED for (int step = 0; step < BLOCK_STEPS; ++step) if (BLOCK_COLUMN(step) < end)
#else
#define BLOCK_STEPS 32
#define LOAD_BLOCK
#define BLOCK_COLUMN(step) (step)
#define BLOCK_LOGIT(step) LOGIT_OR(step, end, -INFINITY)
#define FOR_BLOCK(step) for (long step = begin; step < end; step += STEP)
#endif
#define BLOCK (BLOCK_STEPS * STEP)

#if GROUP > 1
// This work-item's logits of a block. A whole block asks nothing on the way, so that all of its
// loads are under way at once.
static inline void load_block(const logits_row* row, long begin, long end, lane_f* logits) {
  if (end - begin == BLOCK) {
    GROUP_UNROLLED
    for (int step = 0; step < BLOCK_STEPS; ++step) {
      const long v = BLOCK_COLUMN(step);
      logits[step] = LOGIT_OR(v, v + STEP, -INFINITY);
    }
    return;
  }
  FOR_BLOCK(step) logits[step] = LOGIT_OR(BLOCK_COLUMN(step), end, -INFINITY);
}
#endif

// Work-items that need local memory to find what all of them have seen.
#if GROUP > 1
#define SHARED_PARAMETER , local float* shared
#define SHARED_ARGUMENT , shared
#else
#define SHARED_PARAMETER
#define SHARED_ARGUMENT
#endif

#if KEEPS && STREAMS
#define KEPT_PARAMETER , kept_columns* kept
#define KEPT_ARGUMENT kept
#else
#define KEPT_PARAMETER
#define KEPT_ARGUMENT 0
#endif

// Of the columns of a row's slice, written to `at`, [field][ld_]. Always inline: where clang does
// not, it passes the address of `shared` as a constant, and PoCL 3.1 leaves that array in static
// memory, which all of its threads use at once.
static inline __attribute__((always_inline)) void slice_statistics(
    const logits_row* row, global float* at, long ld_ KEPT_PARAMETER SHARED_PARAMETER) {
  const long v_begin = row->begin;
  const long v_end = row->end;
  lane_stats s;
  stats_clear(&s, (int)v_begin);
  long rest = v_begin;
#ifdef STREAMS_STATISTICS
  rest = stream_statistics(&s, row->logits, v_begin, v_end, row->scale, KEPT_ARGUMENT);
#endif
  for (long begin = rest, end; begin < v_end; begin = end) {
    end = pass_end(row, begin, min(begin + BLOCK, v_end));
    LOAD_BLOCK
    lane_f maximum = s.max;
    FOR_BLOCK(step) {
      const lane_f logit = BLOCK_LOGIT(step);
      maximum = logit > maximum ? logit : maximum;
      stats_argmax(&s, logit, LANE_COLUMNS(BLOCK_COLUMN(step), row->apart));
    }
#if GROUP > 1
    // One exponential moves the sums of all lanes.
    maximum = (lane_f)(LANE_MAX(maximum));
#endif
    stats_move(&s, maximum);
    const lane_f shift = stats_shift(maximum);
    lane_stats sums;
    stats_clear(&sums, 0);
    FOR_BLOCK(step) {
      const long v = BLOCK_COLUMN(step);
      const lane_f difference = BLOCK_LOGIT(step) - shift;
      lane_f classes = CLASSES_OR_0(v, end);
#if TARGETS == TARGETS_DENSE
      const lane_f probabilities = PROBABILITIES_OR_0(v, end);
      stats_add_target(&sums, difference, probabilities, classes);
#if !PARTIAL
      classes = dense_target(row->sizes, probabilities, classes);
#endif
#endif
      stats_add(&sums, difference, classes);
    }
    stats_join(&s, &sums);
  }

  // Lanes, then work-items, become relative to their common maximum and are added in order.
  const float maximum = GROUP_MAX(LANE_MAX(s.max));
  stats_move(&s, (lane_f)(maximum));
  // All of it before one work-item alone goes on to write it: PoCL 3.1 takes barriers wrong that
  // come after that.
#define FOLD_STAT(member) const float member = GROUP_TOTAL(lane_total(s.member));
  FOLD_STAT(sum)
#if WANT_CLASS
  FOLD_STAT(class_logit)
  FOLD_STAT(class_sum)
#endif
#if WANT_EXP
  FOLD_STAT(exp_logit)
#endif
#if WANT_ARGMAX
  // Lanes and work-items saw columns in turns: on ties the lowest index wins.
  const float best = GROUP_MAX(LANE_MAX(s.argmax_value));
  int indices[LANES];
  LANE_STORE_I(s.argmax_value == (lane_f)(best) ? s.argmax : (lane_i)(INT_MAX), indices);
  int best_at = indices[0];
  for (int lane = 1; lane < LANES; ++lane) best_at = min(best_at, indices[lane]);
  best_at = GROUP_FIRST(best_at);
#endif
#if TARGETS == TARGETS_DENSE
  FOLD_STAT(label_logit)
  FOLD_STAT(target_sum)
#if PARTIAL
  FOLD_STAT(weighted_logit)
  FOLD_STAT(weighted_sum)
#endif
#endif
#if GROUP > 1
  if (get_local_id(0) != 0) return;
#endif
#define PUT_STAT(field, value) at[field * ld_] = value
  PUT_STAT(STAT_MAX, maximum);
  PUT_STAT(STAT_SUM, sum);
#if WANT_CLASS
  PUT_STAT(STAT_CLASS_LOGIT, class_logit);
  PUT_STAT(STAT_CLASS_SUM, class_sum);
#endif
#if WANT_EXP
  PUT_STAT(STAT_EXP_LOGIT, exp_logit);
#endif
#if WANT_ARGMAX
  PUT_STAT(STAT_ARGMAX_VALUE, best);
  PUT_STAT(STAT_ARGMAX, as_float(best_at));
#endif
#if TARGETS == TARGETS_DENSE
  PUT_STAT(STAT_TARGET_SUM, target_sum);
#if PARTIAL
  PUT_STAT(STAT_WEIGHTED_LOGIT, weighted_logit);
  PUT_STAT(STAT_WEIGHTED_SUM, weighted_sum);
#endif
#else
  float label_logit = -INFINITY;
#if TARGETS == TARGETS_PAIRS
  keep_pair_logits(row);
#else
  if (row->label >= v_begin && row->label < v_end) {
    const float z = LOAD(LOGITS_TYPE, row->logits, row->label * row->v_stride);
    label_logit = LANE_FIRST(lane_logit((lane_f)(z), row->scale, row->cap));
  }
#endif
#endif
  PUT_STAT(STAT_LABEL_LOGIT, label_logit);
}

#endif
