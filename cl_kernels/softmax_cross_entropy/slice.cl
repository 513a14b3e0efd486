// SPDX-License-Identifier: Apache-2.0
// Statistics of logits that exist, row by row: lanes lie along the vocabulary here, so that memory
// is read as it lies, and are merged at the end of a slice. A group is one work-item with LANES
// lanes on a CPU, GROUP work-items of one lane elsewhere.
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

// Columns that are read twice (for the maximum, then for the sums) from the first-level cache.
#define BLOCK (32 * STEP)

// Work-items that need local memory to find what all of them have seen.
#if GROUP > 1
#define SHARED_PARAMETERS , local float *shared_max, local lane_stats *shared
#define SHARED_ARGUMENTS , shared_max, shared
#define DECLARE_SHARED           \
  local float shared_max[GROUP]; \
  local lane_stats shared[GROUP];
#else
#define SHARED_PARAMETERS
#define SHARED_ARGUMENTS
#define DECLARE_SHARED
#endif

#if KEEPS && STREAMS
#define KEPT_PARAMETER , kept_columns* kept
#define KEPT_ARGUMENT kept
#else
#define KEPT_PARAMETER
#define KEPT_ARGUMENT 0
#endif

// Of the columns of a row's slice, written to `at`, [field][ld_].
static inline void slice_statistics(const logits_row* row, global float* at,
                                    long ld_ KEPT_PARAMETER SHARED_PARAMETERS) {
  const long v_begin = row->begin;
  const long v_end = row->end;
  lane_stats s;
  stats_clear(&s, (int)v_begin);
  long rest = v_begin;
#ifdef STREAMS_STATISTICS
  rest = stream_statistics(&s, row->logits, v_begin, v_end, row->scale, KEPT_ARGUMENT);
#endif
  for (long block_begin = rest; block_begin < v_end; block_begin += BLOCK) {
    const long block_end = block_begin + BLOCK < v_end ? block_begin + BLOCK : v_end;
    lane_f maximum = s.max;
    FOR_COLUMNS(v, block_begin, block_end) {
      const lane_f logit = LOGIT_OR(v, block_end, -INFINITY);
      maximum = logit > maximum ? logit : maximum;
      stats_argmax(&s, logit, (lane_i)((int)v) + LANE_INDEX);
    }
    stats_move(&s, maximum);
    const lane_f shift = stats_shift(maximum);
    lane_stats sums;
    stats_clear(&sums, 0);
    FOR_COLUMNS(v, block_begin, block_end) {
      const lane_f difference = LOGIT_OR(v, block_end, -INFINITY) - shift;
      lane_f classes = CLASSES_OR_0(v, block_end);
#if TARGETS == TARGETS_DENSE
      const lane_f probabilities = PROBABILITIES_OR_0(v, block_end);
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
  float maximum = LANE_MAX(s.max);
#if GROUP > 1
  const int item = (int)get_local_id(0);
  shared_max[item] = maximum;
  // Every work-item reads all maxima.
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int other = 0; other < GROUP; ++other) {
    maximum = shared_max[other] > maximum ? shared_max[other] : maximum;
  }
#endif
  stats_move(&s, (lane_f)(maximum));
#if GROUP > 1
  shared[item] = s;
  // Work-item 0 reads what all have found.
  barrier(CLK_LOCAL_MEM_FENCE);
  if (item != 0) return;
  lane_stats total = s;
  for (int other = 1; other < GROUP; ++other) {
    const lane_stats next = shared[other];
    stats_join(&total, &next);
    // Work-items saw interleaved columns: on ties the lowest index wins.
    if (next.argmax_value > total.argmax_value ||
        (next.argmax_value == total.argmax_value && next.argmax < total.argmax)) {
      total.argmax_value = next.argmax_value;
      total.argmax = next.argmax;
    }
  }
#define PUT_STAT(field, value) at[field * ld_] = value
#define TOTAL(member) total.member
#define TOTAL_ARGMAX(value, index)        \
  const float value = total.argmax_value; \
  const int index = total.argmax;
#else
#define PUT_STAT(field, value) at[field * ld_] = value
#define TOTAL(member) lane_total(s.member)
#define TOTAL_ARGMAX(value, index)                                                  \
  float values[LANES];                                                              \
  int indices[LANES];                                                               \
  LANE_STORE(s.argmax_value, values);                                               \
  LANE_STORE_I(s.argmax, indices);                                                  \
  float value = values[0];                                                          \
  int index = indices[0];                                                           \
  for (int lane = 1; lane < LANES; ++lane) {                                        \
    if (values[lane] > value || (values[lane] == value && indices[lane] < index)) { \
      value = values[lane];                                                         \
      index = indices[lane];                                                        \
    }                                                                               \
  }
#endif
  PUT_STAT(STAT_MAX, maximum);
  PUT_STAT(STAT_SUM, TOTAL(sum));
#if WANT_CLASS
  PUT_STAT(STAT_CLASS_LOGIT, TOTAL(class_logit));
  PUT_STAT(STAT_CLASS_SUM, TOTAL(class_sum));
#endif
#if WANT_EXP
  PUT_STAT(STAT_EXP_LOGIT, TOTAL(exp_logit));
#endif
#if WANT_ARGMAX
  TOTAL_ARGMAX(best, best_at)
  PUT_STAT(STAT_ARGMAX_VALUE, best);
  PUT_STAT(STAT_ARGMAX, as_float(best_at));
#endif
#if TARGETS == TARGETS_DENSE
  PUT_STAT(STAT_LABEL_LOGIT, TOTAL(label_logit));
  PUT_STAT(STAT_TARGET_SUM, TOTAL(target_sum));
#if PARTIAL
  PUT_STAT(STAT_WEIGHTED_LOGIT, TOTAL(weighted_logit));
  PUT_STAT(STAT_WEIGHTED_SUM, TOTAL(weighted_sum));
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
  PUT_STAT(STAT_LABEL_LOGIT, label_logit);
#endif
}

#endif
