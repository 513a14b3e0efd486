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

// Adds `value` to the pair (high, low): Knuth's exact sum, so that the pair carries 48 bits where
// the device may have no double.
static inline void add_exactly(float value, float* high, float* low) {
  const float sum = *high + value;
  const float back = sum - *high;
  const float error = (*high - (sum - back)) + (value - back);
  *high = sum;
  *low += error;
}

// Lists the rows that count and their labels, in order, and sums the denominator in row order.
static inline void compact_rows(global const ELEMENT(CLASS_TYPE) * class_weight, global int* lists,
                                global const float* values, global int* info, const call_rows* call,
                                int needs_class_total) {
  int count = 0;
  int bad = 0;
  long bad_row = -1;
  float high = 0.0f;
  float low = 0.0f;
  for (long row = 0; row < call->rows; ++row) {
    const int label = lists[call->labels + row];
    if (label == LABEL_OUT_OF_RANGE) {
      if (bad++ == 0) bad_row = row;
    } else if (label != LABEL_IGNORED) {
      lists[call->counted_rows + count] = (int)row;
      lists[call->counted_labels + count++] = label;
      const float w = call->weight >= 0 ? values[call->weight + row] : 1.0f;
      // The product's own rounding is recovered by fma, so that the pair holds the exact sum.
      const float c = values[call->share + row];
      const float product = w * c;
      add_exactly(product, &high, &low);
      low += fma(w, c, -product);
    }
  }
  // The engines read whole panels: the rows that pad the last one have their label nowhere.
  for (long pad = 0; pad < call->padding; ++pad) {
    lists[call->counted_labels + count + pad] = LABEL_ELSEWHERE;
  }
  const float denominator = high + low;
  info[INFO_COUNT] = count;
  info[INFO_BAD_COUNT] = bad;
  info[INFO_BAD_ROW_LOW] = (int)(bad_row & 0xffffffffL);
  info[INFO_BAD_ROW_HIGH] = (int)(bad_row >> 32);
  info[INFO_DENOMINATOR] = as_int(denominator);
  float total = (float)call->v_total;
  if (class_weight && needs_class_total) {
    high = 0.0f;
    low = 0.0f;
    for (long j = 0; j < call->v_total; ++j) {
      add_exactly(LOAD(CLASS_TYPE, class_weight, j * call->class_stride), &high, &low);
    }
    total = high + low;
  }
  info[INFO_CLASS_TOTAL] = as_int(total);
}

// One work-item.
kernel void compact(global const ELEMENT(CLASS_TYPE) * class_weight, global int* lists,
                    global const float* values, global int* info, compact_arguments a) {
  if (get_global_id(0) != 0) return;
  compact_rows(class_weight + a.at.class_weight, lists + a.at.lists, values + a.at.values,
               info + a.at.info, &a.size.call, a.size.needs_class_total);
}

// The loss of shape () for mean and sum, in row order. A denominator of exactly 0 gives 0. A row
// with a label out of range makes the result NaN through its own loss.
static inline void reduce_rows(global const float* row_loss, global const int* info,
                               global float* loss, long rows, int mean) {
  float high = 0.0f;
  float low = 0.0f;
  // An infinite or NaN term would turn the error terms into NaN: it is summed plainly instead.
  float plain = 0.0f;
  for (long row = 0; row < rows; ++row) {
    const float value = row_loss[row];
    if (isfinite(value)) {
      add_exactly(value, &high, &low);
    } else {
      plain += value;
    }
  }
  float result = high + low;
  if (plain != 0.0f) result += plain;  // NaN != 0 holds
  if (mean) {
    const float denominator = as_float(info[INFO_DENOMINATOR]);
    const int none = info[INFO_BAD_COUNT] == 0;
    result = denominator == 0.0f && none ? 0.0f : result / denominator;
  }
  *loss = result;
}

// One work-item.
kernel void reduce_loss(global const float* row_loss, global const int* info, global float* loss,
                        reduce_loss_arguments a) {
  if (get_global_id(0) != 0) return;
  reduce_rows(row_loss + a.at.row_loss, info + a.at.info, loss + a.at.loss, a.size.rows,
              a.size.mean);
}
