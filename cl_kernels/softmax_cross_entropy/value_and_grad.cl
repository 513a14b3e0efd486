// SPDX-License-Identifier: Apache-2.0
// Statistics and gradient of a row by one work-item, one after the other: memory gives the logits
// once, and the exponentials are formed once, as far as they can be kept in the core's own cache.
#define KEEPS 1
#include "common/coefficients.cl"
#include "softmax_cross_entropy/dlogits.cl"
#include "softmax_cross_entropy/excluded.cl"
#include "softmax_cross_entropy/slice.cl"

// Columns whose exponentials fit local memory, on a CPU a part of the core's own cache.
#ifndef KEPT_COUNT
#define KEPT_COUNT 16
#endif

// Work-groups: (1, counted row of the chunk), each one work-item. `stats` and `coefficients` get
// the row's, as `forward` and `coefficients` would have written them. No loop over rows: a compiler
// would take the constants of all of its loops out of it, and then have no registers for any.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void value_and_grad(
    global const ELEMENT(LOGITS_TYPE) * logits, global const ELEMENT(CLASS_TYPE) * class_weight,
    global const int* info, global const int* rows, global const int* labels, global float* values,
    global const ELEMENT(TARGET_TYPE) * targets, global float* stats, global float* coefficients,
    global ELEMENT(OUT_TYPE) * out, value_and_grad_arguments a) {
#if STREAMS
  local float kept_memory[KEPT_COUNT];
  kept_columns kept;
  kept.memory = kept_memory;
  kept.count = KEPT_COUNT;
  kept.from = kept.to = 0;
  kept.shift = (lane_f)(0.0f);
#define KEPT , &kept
#else
#define KEPT
#endif
  const long i = SECOND_INDEX;
  info += a.at.info;
  if (i >= a.size.ld || a.size.read.chunk_begin + i >= info[INFO_COUNT]) return;
  const long index = rows[a.at.rows + a.size.read.chunk_begin + i];
  if (!in_segment(index, &a.size.read.logits) || !in_segment(index, &a.size.out)) return;
  logits_row row;
  open_row(&row, logits + a.at.logits, class_weight + a.at.class_weight, labels + a.at.labels,
           values + a.at.values, targets + a.at.targets, index, i, 0, &a.size.read);
  const int ld = a.size.ld;
  global float* at = stats + a.at.stats + i;
  global float* c = coefficients + a.at.coefficients + i;
  slice_statistics(&row, at, ld KEPT);
  const float maximum = at[STAT_MAX * (long)ld];
  const float sum = at[STAT_SUM * (long)ld];
  coefficients_row(c, ld, index, maximum, sum, maximum + log(sum), values + a.at.values, info,
                   &a.size.loss, &a.size.cotangent);
  slice_gradient(&row, c, ld,
                 out + a.at.out + row_offset(&a.size.out.geometry, index - a.size.out.begin),
                 a.size.out.v_stride, a.size.add KEPT);
}
