// SPDX-License-Identifier: Apache-2.0
#include "softmax_cross_entropy/dlogits.cl"
#include "softmax_cross_entropy/excluded.cl"

// Work-groups: (slice, counted row of the chunk). Logits and gradients may be cut into different
// segments; the segment of a launch is the intersection.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void gradient(
    LOGITS_ARGUMENTS, CLASS_ARGUMENTS, ROW_ARGUMENTS, long v_count, long v_block,
    global const float* coefficients, long coefficients_offset, int ld, OUT_ARGUMENTS, float scale,
    float cap, int add) {
  const long i = get_group_id(1);
  if (chunk_begin + i >= info[info_offset + INFO_COUNT]) return;
  const long row = rows[rows_offset + chunk_begin + i];
  if (row < segment_begin || row >= segment_end) return;
  if (row < out_segment_begin || row >= out_segment_end) return;
  const long v_begin = (long)get_group_id(0) * v_block;
  slice_gradient(logits, logits_offset + row_offset(&geometry, row - segment_begin), v_stride,
                 class_weight, class_offset, class_stride, labels[labels_offset + chunk_begin + i],
                 v_begin, v_begin + v_block < v_count ? v_begin + v_block : v_count,
                 coefficients + coefficients_offset + i, ld, out,
                 out_offset + row_offset(&out_geometry, row - out_segment_begin), out_v_stride,
                 scale, cap, add);
}
