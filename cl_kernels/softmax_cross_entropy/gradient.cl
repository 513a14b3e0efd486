// SPDX-License-Identifier: Apache-2.0
// The gradient of logits that exist, element by element: it may overwrite them (in place).
#include "common/logit.cl"
#include "common/rows.cl"
#include "softmax_cross_entropy/columns.cl"

#define OUT_ARGUMENTS                                                              \
  global ELEMENT(OUT_TYPE) * out, long out_offset, row_geometry out_geometry,      \
      long out_v_stride, long out_segment_begin, long out_segment_end

// One work-item's columns: stores whole vectors where they lie side by side.
static inline void store_columns(global ELEMENT(OUT_TYPE) * out, long start, long stride, long count,
                          lane_f values, int add) {
#if OUT_TYPE == TYPE_F32 && OUT_CONTIGUOUS
  if (count >= LANES) {
    if (add) values += LANE_LOAD(out + start);
    LANE_STORE(values, out + start);
    return;
  }
#endif
  float lanes[LANES];
  LANE_STORE(values, lanes);
  for (int lane = 0; lane < LANES && lane < count; ++lane) {
    const long at = start + lane * stride;
    STORE(OUT_TYPE, out, at, add ? LOAD(OUT_TYPE, out, at) + lanes[lane] : lanes[lane]);
  }
}

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
  const long base = logits_offset + row_offset(&geometry, row - segment_begin);
  const long to = out_offset + row_offset(&out_geometry, row - out_segment_begin);
  global const float* c = coefficients + coefficients_offset + i;
  const long ld_ = ld;
  lane_row r;
  r.shift = (lane_f)(c[ROW_SHIFT * ld_]);
  r.inverse_sum = (lane_f)(c[ROW_INVERSE_SUM * ld_]);
  r.p = (lane_f)(c[ROW_P * ld_]);
  r.y = (lane_f)(c[ROW_Y * ld_]);
  r.c = (lane_f)(c[ROW_C * ld_]);
  const int label = labels[labels_offset + chunk_begin + i];
  const long v_begin = (long)get_group_id(0) * v_block;
  const long v_end = v_begin + v_block < v_count ? v_begin + v_block : v_count;
  FOR_COLUMNS(v, v_begin, v_end) {
    const lane_f logit = LOGIT_OR(v, v_end, 0.0f);
    const lane_i is_label = ((lane_i)((int)v) + LANE_INDEX) == (lane_i)(label);
#if CLASS_GRADIENT
    const lane_f classes = CLASSES_OR_0(v, v_end);
#else
    const lane_f classes = (lane_f)(0.0f);
#endif
    const lane_f g = lane_dlogit(logit, is_label, classes, &r);
    store_columns(out, to + v * out_v_stride, out_v_stride, v_end - v,
                  lane_dz(g, logit, scale, cap), add);
  }
}

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
