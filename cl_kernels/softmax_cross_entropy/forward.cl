// SPDX-License-Identifier: Apache-2.0
#include "softmax_cross_entropy/slice.cl"

// Work-groups: (slice, counted row of the chunk).
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void forward(
    global const ELEMENT(LOGITS_TYPE) * logits, global const ELEMENT(CLASS_TYPE) * class_weight,
    global const int* info, global const int* rows, global const int* labels, global float* values,
    global const ELEMENT(TARGET_TYPE) * targets, global float* stats, forward_arguments a) {
  SHARED
  const long i = SECOND_INDEX;
  if (i >= a.size.ld || a.size.read.chunk_begin + i >= info[a.at.info + INFO_COUNT]) return;
  const long index = rows[a.at.rows + a.size.read.chunk_begin + i];
  if (!in_segment(index, &a.size.read.logits)) return;
  const long slice = get_group_id(0);
  logits_row row;
  open_row(&row, logits + a.at.logits, class_weight + a.at.class_weight, labels + a.at.labels,
           values + a.at.values, targets + a.at.targets, index, i, slice, &a.size.read);
  slice_statistics(&row, stats + a.at.stats + slice * STAT_FIELDS * (long)a.size.ld + i,
                   a.size.ld SHARED_ARGUMENT);
}
