// SPDX-License-Identifier: Apache-2.0
// Every per-row kernel of a loss in one program, because a driver's compiler takes longer to start
// than to compile these; and two kernels that do for a call of few rows what takes seven launches
// in general, because there the launches are most of the time.
#include "loss/merge.cl"
#include "loss/prepare.cl"
#if TARGETS != TARGETS_LABELS
#include "loss/soft_targets.cl"
#endif

// gather_labels, compact and, with `wants_values`, fill_excluded. One work-group, a work-item per
// row.
RUN_KERNEL void prepare_small(global const ELEMENT(LABEL_TYPE) * labels,
                              global const ELEMENT(CLASS_TYPE) * class_weight, global int* lists,
                              global float* values, global int* info, ROW_OUTPUTS_PARAMETERS,
                              prepare_small_arguments a) {
  local row_run runs[RUN_ITEMS];
  const long row = get_local_id(0);
  const long end = min(row + 1, a.size.call.rows);
  lists += a.at.lists;
  values += a.at.values;
  class_weight += a.at.class_weight;
  if (row < end) {
    gather_label(row, labels ? labels + a.at.labels + row_offset(&a.size.geometry, row) : labels,
                 class_weight, lists, values, &a.size.call);
    if (a.size.wants_values) {
      DECLARE_OUTPUTS(out)
      fill_excluded_row(lists[a.size.call.labels + row], row, &out, &a.size.strides);
    }
  }
  runs[row] = count_run(row, end, lists, values, &a.size.call);
  barrier(CLK_LOCAL_MEM_FENCE);
  const row_run none = {0};
  list_group(row, end, none, runs, 1, lists, info + a.at.info, &a.size.call);
}

// merge, with `out` coefficients, and with `scalar_loss` reduce_loss, of a call whose rows are one
// chunk. One work-group, a work-item per row.
RUN_KERNEL void finish_small(global const float* stats, global const int* info,
                             global const int* rows, global float* values, ROW_OUTPUTS_PARAMETERS,
                             global float* out, global float* scalar_loss,
                             finish_small_arguments a) {
  local row_run runs[RUN_ITEMS];
  const long i = get_local_id(0);
  info += a.at.info;
  rows += a.at.rows;
  values += a.at.values;
  if (i < a.size.ld) {
    if (i < info[INFO_COUNT]) {
      DECLARE_OUTPUTS(outputs)
      merge_row(rows[i], stats + a.at.stats + i, a.size.slices, a.size.ld, values, &outputs,
                &a.size.strides, &a.size.loss, &a.size.merged, i, &a.size.targets);
    }
    if (out) {
      coefficients_from(i, out + a.at.out + i, a.size.ld, info, rows, values, &a.size.loss,
                        &a.size.cotangent, &a.size.merged);
    }
  }
  barrier(CLK_GLOBAL_MEM_FENCE);  // row i of the call is not the i-th of those that count
  const long end = scalar_loss ? min(i + 1, a.size.rows) : i;
  runs[i] = loss_run(i, end, loss + a.at.loss);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (i == 0 && scalar_loss) {
    const row_run none = {0};
    const row_run all = group_total(none, runs);
    scalar_loss[a.at.scalar_loss] = loss_of(&all, info, a.size.loss.mean);
  }
}
