// SPDX-License-Identifier: Apache-2.0
// Statistics of logits that exist, row by row: lanes lie along the vocabulary here, so that memory is
// read as it lies, and are merged at the end of a slice. A group is one work-item with LANES lanes on
// a CPU, GROUP work-items of one lane elsewhere.
#include "common/logit.cl"
#include "common/rows.cl"
#include "common/statistics.cl"
#include "softmax_cross_entropy/columns.cl"

// Columns that are read twice (for the maximum, then for the sums) from the first-level cache.
#define BLOCK (32 * STEP)

// Work-groups: (slice, counted row of the chunk).
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void forward(
    LOGITS_ARGUMENTS, CLASS_ARGUMENTS, ROW_ARGUMENTS, long v_count, long v_block,
    global float* stats, long stats_offset, int ld, float scale, float cap, int argmax_base) {
#if GROUP > 1
  local float shared_max[GROUP];
  local lane_stats shared[GROUP];
#endif
  const long i = get_group_id(1);
  if (chunk_begin + i >= info[info_offset + INFO_COUNT]) return;
  const long row = rows[rows_offset + chunk_begin + i];
  if (row < segment_begin || row >= segment_end) return;
  const long base = logits_offset + row_offset(&geometry, row - segment_begin);
  const long slice = get_group_id(0);
  const long v_begin = slice * v_block;
  const long v_end = v_begin + v_block < v_count ? v_begin + v_block : v_count;

  lane_stats s;
  stats_clear(&s, argmax_base + (int)v_begin);
  for (long block_begin = v_begin; block_begin < v_end; block_begin += BLOCK) {
    const long block_end = block_begin + BLOCK < v_end ? block_begin + BLOCK : v_end;
    lane_f maximum = s.max;
    FOR_COLUMNS(v, block_begin, block_end) {
      const lane_f logit = LOGIT_OR(v, block_end, -INFINITY);
      maximum = logit > maximum ? logit : maximum;
      stats_argmax(&s, logit, (lane_i)(argmax_base + (int)v) + LANE_INDEX);
    }
    stats_move(&s, maximum);
    const lane_f shift = stats_shift(maximum);
    lane_stats sums;
    stats_clear(&sums, 0);
    FOR_COLUMNS(v, block_begin, block_end) {
      stats_add(&sums, LOGIT_OR(v, block_end, -INFINITY) - shift, CLASSES_OR_0(v, block_end));
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
  const long label = labels[labels_offset + chunk_begin + i];
  const long ld_ = ld;
  global float* at = stats + stats_offset + slice * STAT_FIELDS * ld_ + i;
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
#define TOTAL_ARGMAX(value, index) \
  const float value = total.argmax_value; \
  const int index = total.argmax;
#else
#define PUT_STAT(field, value) at[field * ld_] = value
#define TOTAL(member) lane_total(s.member)
#define TOTAL_ARGMAX(value, index)                                       \
  float values[LANES];                                                   \
  int indices[LANES];                                                    \
  LANE_STORE(s.argmax_value, values);                                    \
  LANE_STORE_I(s.argmax, indices);                                       \
  float value = values[0];                                               \
  int index = indices[0];                                                \
  for (int lane = 1; lane < LANES; ++lane) {                             \
    if (values[lane] > value || (values[lane] == value && indices[lane] < index)) { \
      value = values[lane];                                              \
      index = indices[lane];                                             \
    }                                                                    \
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
  float label_logit = -INFINITY;
  if (label >= v_begin && label < v_end) {
    label_logit = LANE_FIRST(
        lane_logit((lane_f)(LOAD(LOGITS_TYPE, logits, base + label * v_stride)), scale, cap));
  }
  PUT_STAT(STAT_LABEL_LOGIT, label_logit);
}
