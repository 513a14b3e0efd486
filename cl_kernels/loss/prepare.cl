// SPDX-License-Identifier: Apache-2.0
// What happens once per call, before any matrix work: labels are checked and made local, per-token
// inputs become dense f32, and the rows that count are listed.
#include "common/info.cl"
#include "common/rows.cl"
#include "common/types.cl"
#include "loss/arguments.h"

#ifndef LABEL_TYPE
#define LABEL_TYPE TYPE_I32
#endif
#ifndef VALUE_TYPE
#define VALUE_TYPE TYPE_F32
#endif
#ifndef CLASS_TYPE
#define CLASS_TYPE TYPE_F32
#endif

// Kernels in which a group of RUN_ITEMS work-items treats RUN_BLOCK rows, RUN_ROWS each.
#define RUN_KERNEL kernel __attribute__((reqd_work_group_size(RUN_ITEMS, 1, 1)))

// labels[row] = column in this call or LABEL_*; class_of_label[row] = the weight of the label's
// class (1 without class weights, 0 for rows that do not count). `label` is the row's in the
// caller's array, null where rows have no target and all count; `class_weight` the weight of class
// 0.
static inline void gather_label(long row, global const ELEMENT(LABEL_TYPE) * label,
                                global const ELEMENT(CLASS_TYPE) * class_weight, global int* lists,
                                global float* values, const call_rows* call) {
  const long given = label ? *label : 0;
  int result;
  float c = 0.0f;
  if (!label) {
    result = LABEL_ELSEWHERE;
    c = 1.0f;
  } else if (given == call->ignore_index) {
    result = LABEL_IGNORED;
  } else if (given < 0 || given >= call->v_total) {
    result = LABEL_OUT_OF_RANGE;
  } else {
    const long local_label = given - call->vocab_offset;
    result = local_label >= 0 && local_label < call->v ? (int)local_label : LABEL_ELSEWHERE;
    c = class_weight ? LOAD(CLASS_TYPE, class_weight, given * call->class_stride) : 1.0f;
  }
  lists[call->labels + row] = result;
  values[call->class_of_label + row] = c;
}

// One work-item per row.
kernel void gather_labels(global const ELEMENT(LABEL_TYPE) * labels,
                          global const ELEMENT(CLASS_TYPE) * class_weight, global int* lists,
                          global float* values, gather_labels_arguments a) {
  const long row = get_global_id(0);
  if (row >= a.size.call.rows) return;
  gather_label(row, labels ? labels + a.at.labels + row_offset(&a.size.geometry, row) : labels,
               class_weight + a.at.class_weight, lists + a.at.lists, values + a.at.values,
               &a.size.call);
}

// One work-item per row: out[row * width + column] = the per-token input as dense f32.
kernel void gather_values(global const ELEMENT(VALUE_TYPE) * values, global float* out,
                          gather_values_arguments a) {
  const long row = get_global_id(0);
  if (row >= a.size.rows) return;
  const long base = a.at.values + row_offset(&a.size.geometry, row);
  for (long column = 0; column < a.size.width; ++column) {
    out[a.at.out + row * a.size.width + column] =
        LOAD(VALUE_TYPE, values, base + column * a.size.column_stride);
  }
}

// One work-item per row: the inverse of gather for outputs whose rows lie at more than one stride.
// i32 outputs (argmax) travel as their bits; where the caller's are i64 they are widened.
kernel void scatter_rows(global const uint* values, global uint* out, scatter_rows_arguments a) {
  const long row = get_global_id(0);
  if (row >= a.size.copy.rows) return;
  const long base = a.at.out + row_offset(&a.size.copy.geometry, row);
  const long width = a.size.copy.width;
  for (long column = 0; column < width; ++column) {
    const uint word = values[a.at.values + row * width + column];
    const long at = base + column * a.size.copy.column_stride;
    if (a.size.to_i64) {
      ((global long*)out)[at] = (int)word;
    } else {
      out[at] = word;
    }
  }
}

// Adds to the pair (high, low): Knuth's exact sum, so that the pair carries 48 bits where the
// device may have no double. An infinite or NaN term would turn the error terms into NaN: it is
// summed plainly instead.
static inline void run_add(row_run* run, float value) {
  if (!isfinite(value)) {
    run->plain += value;
    return;
  }
  const float sum = run->high + value;
  const float back = sum - run->high;
  const float error = (run->high - (sum - back)) + (value - back);
  run->high = sum;
  run->low += error;
}
static inline float run_total(const row_run* run) {
  const float total = run->high + run->low;
  return run->plain != 0.0f ? total + run->plain : total;  // NaN != 0 holds
}

// `next` are the rows that follow.
static inline void run_join(row_run* run, const row_run next) {
  if (run->bad == 0) run->first_bad = next.first_bad;
  run->bad += next.bad;
  run->count += next.count;
  run_add(run, next.high);
  run->low += next.low;
  run->plain += next.plain;
}

// Those of the work-items of a group, which come after `run`; and those of `blocks` blocks.
static inline row_run group_total(row_run run, local const row_run* runs) {
  for (int item = 0; item < RUN_ITEMS; ++item) run_join(&run, runs[item]);
  return run;
}
static inline row_run blocks_total(row_run run, global const row_run* runs, long blocks) {
  for (long block = 0; block < blocks; ++block) run_join(&run, runs[block]);
  return run;
}

// Of `count` things in blocks of RUN_BLOCK, a group each: where the part of a work-item begins and
// ends.
static inline long run_begin(long count) {
  return min((long)(get_group_id(0) * RUN_BLOCK + get_local_id(0) * RUN_ROWS), count);
}
static inline long run_end(long count) { return min(run_begin(count) + RUN_ROWS, count); }

// What the rows [begin, end) come to.
static inline row_run count_run(long begin, long end, global const int* lists,
                                global const float* values, const call_rows* call) {
  row_run run = {0};
  for (long row = begin; row < end; ++row) {
    const int label = lists[call->labels + row];
    if (label == LABEL_OUT_OF_RANGE) {
      if (run.bad++ == 0) run.first_bad = row;
    } else if (label != LABEL_IGNORED) {
      ++run.count;
      const float w = call->weight >= 0 ? values[call->weight + row] : 1.0f;
      // The product's own rounding is recovered by fma, so that the pair holds the exact sum.
      const float c = values[call->share + row];
      const float product = w * c;
      run_add(&run, product);
      if (isfinite(product)) run.low += fma(w, c, -product);
    }
  }
  return run;
}

// Lists those of the rows [begin, end) that count, and their labels, from place `at` on.
static inline void list_run(long begin, long end, int at, global int* lists,
                            const call_rows* call) {
  for (long row = begin; row < end; ++row) {
    const int label = lists[call->labels + row];
    if (label == LABEL_IGNORED || label == LABEL_OUT_OF_RANGE) continue;
    lists[call->counted_rows + at] = (int)row;
    lists[call->counted_labels + at++] = label;
  }
}

// What all rows came to.
static inline void write_info(const row_run* all, global int* lists, global int* info,
                              const call_rows* call) {
  // The engines read whole panels: the rows that pad the last one have their label nowhere.
  for (long pad = 0; pad < call->padding; ++pad) {
    lists[call->counted_labels + all->count + pad] = LABEL_ELSEWHERE;
  }
  const long bad_row = all->bad > 0 ? all->first_bad : -1;
  info[INFO_COUNT] = all->count;
  info[INFO_BAD_COUNT] = all->bad;
  info[INFO_BAD_ROW_LOW] = (int)(bad_row & 0xffffffffL);
  info[INFO_BAD_ROW_HIGH] = (int)(bad_row >> 32);
  info[INFO_DENOMINATOR] = as_int(run_total(all));
  float total = (float)call->v_total;
  if (call->class_runs >= 0) {
    const row_run none = {0};
    const row_run classes = blocks_total(none, (global const row_run*)(lists + call->class_runs),
                                         (call->v_total + RUN_BLOCK - 1) / RUN_BLOCK);
    total = run_total(&classes);
  }
  info[INFO_CLASS_TOTAL] = as_int(total);
}

// The work-items of a group list the rows that each has, [begin, end): `before` of those that count
// come before the group's. The last group says what all came to.
static inline void list_group(long begin, long end, row_run before, local const row_run* runs,
                              int is_last, global int* lists, global int* info,
                              const call_rows* call) {
  int at = before.count;
  for (int item = 0; item < (int)get_local_id(0); ++item) at += runs[item].count;
  list_run(begin, end, at, lists, call);
  if (is_last && get_local_id(0) == 0) {
    const row_run all = group_total(before, runs);
    write_info(&all, lists, info, call);
  }
}

// Sums of class weights, a group for each block of the vocabulary.
RUN_KERNEL void sum_classes(global const ELEMENT(CLASS_TYPE) * class_weight, global int* lists,
                            sum_classes_arguments a) {
  local row_run runs[RUN_ITEMS];
  const long end = run_end(a.size.call.v_total);
  row_run run = {0};
  for (long j = run_begin(a.size.call.v_total); j < end; ++j) {
    run_add(&run, LOAD(CLASS_TYPE, class_weight, a.at.class_weight + j * a.size.call.class_stride));
  }
  runs[get_local_id(0)] = run;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) != 0) return;
  const row_run none = {0};
  ((global row_run*)(lists + a.at.lists + a.size.call.class_runs))[get_group_id(0)] =
      group_total(none, runs);
}

// What the rows of each block come to, a group each.
RUN_KERNEL void count_rows(global int* lists, global const float* values, count_rows_arguments a) {
  local row_run runs[RUN_ITEMS];
  lists += a.at.lists;
  const call_rows* call = &a.size.call;
  runs[get_local_id(0)] =
      count_run(run_begin(call->rows), run_end(call->rows), lists, values + a.at.values, call);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) != 0) return;
  const row_run none = {0};
  ((global row_run*)(lists + call->runs))[get_group_id(0)] = group_total(none, runs);
}

// Lists the rows that count and their labels, in order, and sums the denominator: that of runs of
// RUN_ROWS rows, of RUN_BLOCK, and of all, each in order of the rows, so that it is the same on
// every device. A group for each block; those before it were counted, where there are any.
RUN_KERNEL void compact(global int* lists, global const float* values, global int* info,
                        compact_arguments a) {
  local row_run runs[RUN_ITEMS];
  local row_run before[1];
  lists += a.at.lists;
  const call_rows* call = &a.size.call;
  const long begin = run_begin(call->rows);
  const long end = run_end(call->rows);
  runs[get_local_id(0)] = count_run(begin, end, lists, values + a.at.values, call);
  if (get_local_id(0) == 0) {
    const row_run none = {0};
    before[0] = blocks_total(none, (global const row_run*)(lists + call->runs), get_group_id(0));
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  list_group(begin, end, before[0], runs, get_group_id(0) + 1 == get_num_groups(0), lists,
             info + a.at.info, call);
}

// What the losses of rows come to.
static inline row_run loss_run(long begin, long end, global const float* row_loss) {
  row_run run = {0};
  for (long row = begin; row < end; ++row) run_add(&run, row_loss[row]);
  return run;
}

// The loss of shape () for mean and sum. A denominator of exactly 0 gives 0. A row with a label out
// of range makes the result NaN through its own loss.
static inline float loss_of(const row_run* all, global const int* info, int mean) {
  const float sum = run_total(all);
  if (!mean) return sum;
  const float denominator = as_float(info[INFO_DENOMINATOR]);
  return denominator == 0.0f && info[INFO_BAD_COUNT] == 0 ? 0.0f : sum / denominator;
}

// The sum of each block of rows, a group each.
RUN_KERNEL void sum_losses(global const float* row_loss, global int* lists,
                           sum_losses_arguments a) {
  local row_run runs[RUN_ITEMS];
  runs[get_local_id(0)] =
      loss_run(run_begin(a.size.rows), run_end(a.size.rows), row_loss + a.at.row_loss);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) != 0) return;
  const row_run none = {0};
  ((global row_run*)(lists + a.at.lists + a.size.runs))[get_group_id(0)] = group_total(none, runs);
}

// One group: sums the first block of rows, and adds those of the others, which are there.
RUN_KERNEL void reduce_loss(global const float* row_loss, global const int* lists,
                            global float* loss, reduce_loss_arguments a) {
  local row_run runs[RUN_ITEMS];
  runs[get_local_id(0)] =
      loss_run(run_begin(a.size.rows), run_end(a.size.rows), row_loss + a.at.row_loss);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (get_local_id(0) != 0) return;
  const row_run none = {0};
  const row_run all = blocks_total(group_total(none, runs),
                                   (global const row_run*)(lists + a.at.lists + a.size.runs) + 1,
                                   (a.size.rows - 1) / RUN_BLOCK);
  loss[a.at.loss] = loss_of(&all, lists + a.at.lists, a.size.mean);
}
