// SPDX-License-Identifier: Apache-2.0
// Every per-row kernel of a loss in one program, because a driver's compiler takes longer to start
// than to compile these; and two kernels that do for a call of few rows what takes seven launches in
// general, because there the launches are most of the time.
#include "loss/merge.cl"
#include "loss/prepare.cl"

// gather_labels, compact and, with `values`, fill_excluded. One work-group, a work-item per row.
kernel void prepare_small(global const ELEMENT(LABEL_TYPE) * labels, long labels_offset,
                          row_geometry geometry, global const ELEMENT(CLASS_TYPE) * class_weight,
                          long class_offset, long class_stride, global int* label_out,
                          long label_out_offset, global float* class_of_label,
                          long class_of_label_offset, long rows, long v, long v_total,
                          long vocab_offset, long ignore_index, global const float* weight,
                          long weight_offset, global int* rows_out, long rows_out_offset,
                          global int* labels_out, long labels_out_offset, global int* info,
                          long info_offset, long padding, int needs_class_total, int values,
                          OUTPUT_PARAMETERS) {
  const long row = get_local_id(0);
  if (row < rows) {
    gather_label(row, labels, labels_offset, &geometry, class_weight, class_offset, class_stride,
                 label_out, label_out_offset, class_of_label, class_of_label_offset, v, v_total,
                 vocab_offset, ignore_index);
    if (values) fill_excluded_row(label_out[label_out_offset + row], row, OUTPUT_ARGUMENTS);
  }
  barrier(CLK_GLOBAL_MEM_FENCE);  // the first work-item reads every row
  if (row == 0) {
    compact_rows(label_out, label_out_offset, class_of_label, class_of_label_offset, weight,
                 weight_offset, class_weight, class_offset, class_stride, rows_out,
                 rows_out_offset, labels_out, labels_out_offset, info, info_offset, rows, padding,
                 v_total, needs_class_total);
  }
}

// merge, with `out` coefficients, and with `scalar_loss` reduce_loss, of a call whose rows are one
// chunk. One work-group, a work-item per row.
kernel void finish_small(global const float* stats, long stats_offset, int slices, int ld,
                         global const int* info, long info_offset, global const int* rows,
                         long rows_offset, global const float* weight, long weight_offset,
                         global const float* class_of_label, long class_of_label_offset,
                         global float* row_max, long row_max_offset, global float* row_sum,
                         long row_sum_offset, OUTPUT_PARAMETERS, float logsumexp_weight,
                         float label_smoothing, float v_total, global float* out, long out_offset,
                         global const float* dloss, long dloss_offset, long dloss_stride,
                         global const float* dlse, long dlse_offset, int mean,
                         global float* scalar_loss, long scalar_loss_offset, long all_rows) {
  const long i = get_local_id(0);
  if (i < ld) {
    if (i < info[info_offset + INFO_COUNT]) {
      merge_row(i, stats, stats_offset, slices, ld, rows[rows_offset + i], weight, weight_offset,
                class_of_label, class_of_label_offset, row_max, row_max_offset, row_sum,
                row_sum_offset, OUTPUT_ARGUMENTS, logsumexp_weight, label_smoothing, v_total);
    }
    if (out) {
      coefficients_row(i, out, out_offset, ld, info, info_offset, rows, rows_offset, 0, row_max,
                       row_max_offset, row_sum, row_sum_offset, 1, weight, weight_offset,
                       class_of_label, class_of_label_offset, dloss, dloss_offset, dloss_stride,
                       dlse, dlse_offset, mean, logsumexp_weight, label_smoothing, v_total);
    }
  }
  barrier(CLK_GLOBAL_MEM_FENCE);  // the first work-item reads every row
  if (i == 0 && scalar_loss) {
    reduce_rows(loss, loss_offset, info, info_offset, scalar_loss, scalar_loss_offset, all_rows,
                mean);
  }
}
