// SPDX-License-Identifier: Apache-2.0
#include "softmax_cross_entropy/dlogits.cl"
#include "softmax_cross_entropy/excluded.cl"

// Work-groups: (slice, counted row of the chunk). Logits and gradients may be cut into different
// segments; the segment of a launch is the intersection.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void gradient(
    global const ELEMENT(LOGITS_TYPE) * logits, global const ELEMENT(CLASS_TYPE) * class_weight,
    global const int* info, global const int* rows, global const int* labels, global float* values,
    global const ELEMENT(TARGET_TYPE) * targets, global const float* coefficients,
    global ELEMENT(OUT_TYPE) * out, gradient_arguments a) {
  const long i = SECOND_INDEX;
  if (i >= a.size.ld || a.size.read.chunk_begin + i >= info[a.at.info + INFO_COUNT]) return;
  const long index = rows[a.at.rows + a.size.read.chunk_begin + i];
  if (!in_segment(index, &a.size.read.logits) || !in_segment(index, &a.size.out)) return;
  logits_row row;
  open_row(&row, logits + a.at.logits, class_weight + a.at.class_weight, labels + a.at.labels,
           values + a.at.values, targets + a.at.targets, index, i, get_group_id(0), &a.size.read);
  slice_gradient(&row, coefficients + a.at.coefficients + i, a.size.ld,
                 out + a.at.out + row_offset(&a.size.out.geometry, index - a.size.out.begin),
                 a.size.out.v_stride, a.size.add);
}
