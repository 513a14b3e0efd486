// SPDX-License-Identifier: Apache-2.0
#include "softmax_cross_entropy/dlogits.cl"

// Work-groups: (slice, row of the segment): rows that do not count.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void gradient_excluded(
    global const int* labels, global ELEMENT(OUT_TYPE) * out, gradient_excluded_arguments a) {
  const long row = a.size.out.begin + SECOND_INDEX;
  if (row >= a.size.out.end) return;
  const int label = labels[a.at.labels + row];
  if (label > LABEL_IGNORED || (label == LABEL_IGNORED && a.size.add)) return;
  const long to = a.at.out + row_offset(&a.size.out.geometry, row - a.size.out.begin);
  const lane_f value = (lane_f)(label == LABEL_IGNORED ? 0.0f : NAN);
  const long v_begin = (long)get_group_id(0) * a.size.v_block;
  const long v_end = min(v_begin + a.size.v_block, a.size.v_count);
  const long v_stride = a.size.out.v_stride;
  const int apart = !OUT_CONTIGUOUS || BEFORE_VECTOR(OUT_TYPE, out + to + v_begin) > 0;
  FOR_COLUMNS(v, v_begin, v_end, apart) {
    store_columns(out, to + v * v_stride, v_stride, v_end - v, value, 0, apart);
  }
}
