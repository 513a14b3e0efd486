// SPDX-License-Identifier: Apache-2.0
#include "softmax_cross_entropy/slice.cl"

// Work-groups: (slice, counted row of the chunk).
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void forward(
    LOGITS_ARGUMENTS, CLASS_ARGUMENTS, ROW_ARGUMENTS, long v_count, long v_block,
    global float* stats, long stats_offset, int ld, float scale, float cap, int argmax_base) {
  DECLARE_SHARED
  const long i = get_group_id(1);
  if (chunk_begin + i >= info[info_offset + INFO_COUNT]) return;
  const long row = rows[rows_offset + chunk_begin + i];
  if (row < segment_begin || row >= segment_end) return;
  const long slice = get_group_id(0);
  const long v_begin = slice * v_block;
  slice_statistics(logits, logits_offset + row_offset(&geometry, row - segment_begin), v_stride,
                   class_weight, class_offset, class_stride, labels[labels_offset + chunk_begin + i],
                   v_begin, v_begin + v_block < v_count ? v_begin + v_block : v_count,
                   stats + stats_offset + slice * STAT_FIELDS * (long)ld + i, ld, scale, cap,
                   argmax_base SHARED_ARGUMENTS);
}
