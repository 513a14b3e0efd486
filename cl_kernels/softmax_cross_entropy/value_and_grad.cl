// SPDX-License-Identifier: Apache-2.0
// Statistics and gradient of a row by one work-item, one after the other: memory gives the logits
// once, and the exponentials are formed once, as far as they can be kept in the core's own cache.
#define KEEPS 1
#include "common/coefficients.cl"
#include "softmax_cross_entropy/dlogits.cl"
#include "softmax_cross_entropy/excluded.cl"
#include "softmax_cross_entropy/slice.cl"

// Work-groups: (1, counted row of the chunk), each one work-item. `stats` and `coefficients` get the
// row's, as `forward` and `coefficients` would have written them. No loop over rows: a compiler would
// take the constants of all of its loops out of it, and then have no registers for any.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void value_and_grad(
    LOGITS_ARGUMENTS, CLASS_ARGUMENTS, ROW_ARGUMENTS, long v_count, global float* stats,
    long stats_offset, global float* coefficients, long coefficients_offset, int ld,
    global const float* weight, long weight_offset, global const float* class_of_label,
    long class_of_label_offset, global const float* dloss, long dloss_offset, long dloss_stride,
    global const float* dlse, long dlse_offset, int mean, float logsumexp_weight,
    float label_smoothing, float v_total, OUT_ARGUMENTS, float scale, float cap, int argmax_base, int add) {
#if STREAMS
  // KEPT_COUNT: columns whose exponentials fit local memory, on a CPU a part of the core's own cache.
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
  const long i = get_group_id(1);
  if (chunk_begin + i >= info[info_offset + INFO_COUNT]) return;
  const long row = rows[rows_offset + chunk_begin + i];
  if (row < segment_begin || row >= segment_end) return;
  if (row < out_segment_begin || row >= out_segment_end) return;
  const long base = logits_offset + row_offset(&geometry, row - segment_begin);
  const long label = labels[labels_offset + chunk_begin + i];
  slice_statistics(logits, base, v_stride, class_weight, class_offset, class_stride, label, 0,
                   v_count, stats + stats_offset + i, ld, scale, cap, argmax_base KEPT);
  coefficients_row(i, coefficients, coefficients_offset, ld, info, info_offset, rows, rows_offset,
                   chunk_begin, stats, stats_offset + STAT_MAX * (long)ld + i, stats,
                   stats_offset + STAT_SUM * (long)ld + i, 0, weight, weight_offset, class_of_label,
                   class_of_label_offset, dloss, dloss_offset, dloss_stride, dlse, dlse_offset, mean,
                   logsumexp_weight, label_smoothing, v_total);
  slice_gradient(logits, base, v_stride, class_weight, class_offset, class_stride, label, 0, v_count,
                 coefficients + coefficients_offset + i, ld, out,
                 out_offset + row_offset(&out_geometry, row - out_segment_begin), out_v_stride,
                 scale, cap, add KEPT);
}
