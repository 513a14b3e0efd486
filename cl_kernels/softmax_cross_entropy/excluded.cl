// SPDX-License-Identifier: Apache-2.0
#include "softmax_cross_entropy/dlogits.cl"

// Work-groups: (slice, row of the segment): rows that do not count.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void gradient_excluded(
    global const int* labels, long labels_offset, long v_count, long v_block, OUT_ARGUMENTS,
    int add) {
  const long row = out_segment_begin + get_group_id(1);
  if (row >= out_segment_end) return;
  const int label = labels[labels_offset + row];
  if (label > LABEL_IGNORED || (label == LABEL_IGNORED && add)) return;
  const long to = out_offset + row_offset(&out_geometry, row - out_segment_begin);
  const lane_f value = (lane_f)(label == LABEL_IGNORED ? 0.0f : NAN);
  const long v_begin = (long)get_group_id(0) * v_block;
  const long v_end = v_begin + v_block < v_count ? v_begin + v_block : v_count;
  FOR_COLUMNS(v, v_begin, v_end) {
    store_columns(out, to + v * out_v_stride, out_v_stride, v_end - v, value, 0);
  }
}
