// SPDX-License-Identifier: Apache-2.0
// What happens once per call, before any matrix work: labels are checked and made local, per-token
// inputs become dense f32, and the rows that count are listed.
#include "common/info.cl"
#include "common/rows.cl"
#include "common/types.cl"

#ifndef LABEL_TYPE
#define LABEL_TYPE TYPE_I32
#endif
#ifndef VALUE_TYPE
#define VALUE_TYPE TYPE_F32
#endif
#ifndef CLASS_TYPE
#define CLASS_TYPE TYPE_F32
#endif

// label_out[row] = column in this call or LABEL_*; class_of_label[row] = the weight of the label's
// class (1 without class weights, 0 for rows that do not count).
static inline void gather_label(long row, global const ELEMENT(LABEL_TYPE) * labels,
                                long labels_offset, const row_geometry* geometry,
                                global const ELEMENT(CLASS_TYPE) * class_weight, long class_offset,
                                long class_stride, global int* label_out, long label_out_offset,
                                global float* class_of_label, long class_of_label_offset, long v,
                                long v_total, long vocab_offset, long ignore_index) {
  const long label = labels[labels_offset + row_offset(geometry, row)];
  int result;
  float c = 0.0f;
  if (label == ignore_index) {
    result = LABEL_IGNORED;
  } else if (label < 0 || label >= v_total) {
    result = LABEL_OUT_OF_RANGE;
  } else {
    const long local_label = label - vocab_offset;
    result = local_label >= 0 && local_label < v ? (int)local_label : LABEL_ELSEWHERE;
    c = class_weight ? LOAD(CLASS_TYPE, class_weight, class_offset + label * class_stride) : 1.0f;
  }
  label_out[label_out_offset + row] = result;
  class_of_label[class_of_label_offset + row] = c;
}

// One work-item per row.
kernel void gather_labels(global const ELEMENT(LABEL_TYPE) * labels, long labels_offset,
                          row_geometry geometry, global const ELEMENT(CLASS_TYPE) * class_weight,
                          long class_offset, long class_stride, global int* label_out,
                          long label_out_offset, global float* class_of_label,
                          long class_of_label_offset, long rows, long v, long v_total,
                          long vocab_offset, long ignore_index) {
  const long row = get_global_id(0);
  if (row >= rows) return;
  gather_label(row, labels, labels_offset, &geometry, class_weight, class_offset, class_stride,
               label_out, label_out_offset, class_of_label, class_of_label_offset, v, v_total,
               vocab_offset, ignore_index);
}

// One work-item per row: out[row * width + column] = the per-token input as dense f32.
kernel void gather_values(global const ELEMENT(VALUE_TYPE) * values, long values_offset,
                          row_geometry geometry, long column_stride, long width, global float* out,
                          long out_offset, long rows) {
  const long row = get_global_id(0);
  if (row >= rows) return;
  const long base = values_offset + row_offset(&geometry, row);
  for (long column = 0; column < width; ++column) {
    out[out_offset + row * width + column] = LOAD(VALUE_TYPE, values, base + column * column_stride);
  }
}

// One work-item per row: the inverse of gather for outputs whose rows lie at more than one stride.
// i32 outputs (argmax) travel as their bits.
kernel void scatter_rows(global const uint* values, long values_offset, row_geometry geometry,
                         long column_stride, long width, global uint* out, long out_offset,
                         long rows) {
  const long row = get_global_id(0);
  if (row >= rows) return;
  const long base = out_offset + row_offset(&geometry, row);
  for (long column = 0; column < width; ++column) {
    out[base + column * column_stride] = values[values_offset + row * width + column];
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
static inline void compact_rows(global const int* labels, long labels_offset,
                                global const float* class_of_label, long class_of_label_offset,
                                global const float* weight, long weight_offset,
                                global const ELEMENT(CLASS_TYPE) * class_weight, long class_offset,
                                long class_stride, global int* rows_out, long rows_out_offset,
                                global int* labels_out, long labels_out_offset, global int* info,
                                long info_offset, long rows, long padding, long v_total,
                                int needs_class_total) {
  int count = 0;
  int bad = 0;
  long bad_row = -1;
  float high = 0.0f;
  float low = 0.0f;
  for (long row = 0; row < rows; ++row) {
    const int label = labels[labels_offset + row];
    if (label == LABEL_OUT_OF_RANGE) {
      if (bad++ == 0) bad_row = row;
    } else if (label != LABEL_IGNORED) {
      rows_out[rows_out_offset + count] = (int)row;
      labels_out[labels_out_offset + count++] = label;
      const float w = weight ? weight[weight_offset + row] : 1.0f;
      // The product's own rounding is recovered by fma, so that the pair holds the exact sum.
      const float c = class_of_label[class_of_label_offset + row];
      const float product = w * c;
      add_exactly(product, &high, &low);
      low += fma(w, c, -product);
    }
  }
  // The engines read whole panels: the rows that pad the last one have their label nowhere.
  for (long pad = 0; pad < padding; ++pad) labels_out[labels_out_offset + count + pad] = LABEL_ELSEWHERE;
  const float denominator = high + low;
  info += info_offset;
  info[INFO_COUNT] = count;
  info[INFO_BAD_COUNT] = bad;
  info[INFO_BAD_ROW_LOW] = (int)(bad_row & 0xffffffffL);
  info[INFO_BAD_ROW_HIGH] = (int)(bad_row >> 32);
  info[INFO_DENOMINATOR] = as_int(denominator);
  info[INFO_DENOMINATOR_LOW] = as_int(low - (denominator - high));
  float total = (float)v_total;
  if (class_weight && needs_class_total) {
    high = 0.0f;
    low = 0.0f;
    for (long j = 0; j < v_total; ++j) {
      add_exactly(LOAD(CLASS_TYPE, class_weight, class_offset + j * class_stride), &high, &low);
    }
    total = high + low;
  }
  info[INFO_CLASS_TOTAL] = as_int(total);
}

// One work-item.
kernel void compact(global const int* labels, long labels_offset,
                    global const float* class_of_label, long class_of_label_offset,
                    global const float* weight, long weight_offset,
                    global const ELEMENT(CLASS_TYPE) * class_weight, long class_offset,
                    long class_stride, global int* rows_out, long rows_out_offset,
                    global int* labels_out, long labels_out_offset, global int* info,
                    long info_offset, long rows, long padding, long v_total,
                    int needs_class_total) {
  if (get_global_id(0) != 0) return;
  compact_rows(labels, labels_offset, class_of_label, class_of_label_offset, weight, weight_offset,
               class_weight, class_offset, class_stride, rows_out, rows_out_offset, labels_out,
               labels_out_offset, info, info_offset, rows, padding, v_total, needs_class_total);
}

// The loss of shape () for mean and sum, in row order. A denominator of exactly 0 gives 0. A row
// with a label out of range makes the result NaN through its own loss.
static inline void reduce_rows(global const float* row_loss, long row_loss_offset,
                               global const int* info, long info_offset, global float* loss,
                               long loss_offset, long rows, int mean) {
  float high = 0.0f;
  float low = 0.0f;
  // An infinite or NaN term would turn the error terms into NaN: it is summed plainly instead.
  float plain = 0.0f;
  for (long row = 0; row < rows; ++row) {
    const float value = row_loss[row_loss_offset + row];
    if (isfinite(value)) {
      add_exactly(value, &high, &low);
    } else {
      plain += value;
    }
  }
  float result = high + low;
  if (plain != 0.0f) result += plain;  // NaN != 0 holds
  if (mean) {
    const float denominator = as_float(info[info_offset + INFO_DENOMINATOR]);
    const int none = info[info_offset + INFO_BAD_COUNT] == 0;
    result = denominator == 0.0f && none ? 0.0f : result / denominator;
  }
  loss[loss_offset] = result;
}

// One work-item.
kernel void reduce_loss(global const float* row_loss, long row_loss_offset, global const int* info,
                        long info_offset, global float* loss, long loss_offset, long rows,
                        int mean) {
  if (get_global_id(0) != 0) return;
  reduce_rows(row_loss, row_loss_offset, info, info_offset, loss, loss_offset, rows, mean);
}
