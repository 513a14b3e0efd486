// SPDX-License-Identifier: Apache-2.0
// Every per-row kernel of a loss in one program, because a driver's compiler takes longer to start
// than to compile these; and two kernels that do for a call of few rows what takes seven launches
// in general, because there the launches are most of the time.
#include "loss/merge.cl"
#include "loss/prepare.cl"
#if TARGETS != TARGETS_LABELS
#include "loss/soft_targets.cl"
#endif

// gather_labels, compact and, with `wants_values`,
// fill_excluded. One work-group, a work-item per row.
kernel void prepare_small(global const ELEMENT(LABEL_TYPE) * labels,
                          global const ELEMENT(CLASS_TYPE) * class_weight, global int* lists,
                          global float* values, global int* info, ROW_OUTPUTS_PARAMETERS,
                          prepare_small_arguments a) {
  const long row = get_local_id(0);
  lists += a.at.lists;
  values += a.at.values;
  class_weight += a.at.class_weight;
  if (row < a.size.call.rows) {
    gather_label(row, labels ? labels + a.at.labels + row_offset(&a.size.geometry, row) : labels,
                 class_weight, lists, values, &a.size.call);
    if (a.size.wants_values) {
      DECLARE_OUTPUTS(out)
      fill_excluded_row(lists[a.size.call.labels + row], row, &out, &a.size.strides);
    }
  }
  barrier(CLK_GLOBAL_MEM_FENCE);  // the first work-item reads every row
  if (row == 0) {
    compact_rows(class_weight, lists, values, info + a.at.info, &a.size.call,
                 a.size.needs_class_total);
  }
}

// merge, with `out` coefficients, and with `scalar_loss` reduce_loss, of a call whose rows are one
// chunk. One work-group, a work-item per row.
kernel void finish_small(global const float* stats, global const int* info, global const int* rows,
                         global float* values, ROW_OUTPUTS_PARAMETERS, global float* out,
                         global float* scalar_loss, finish_small_arguments a) {
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
  barrier(CLK_GLOBAL_MEM_FENCE);  // the first work-item reads every row
  if (i == 0 && scalar_loss) {
    reduce_rows(loss + a.at.loss, info, scalar_loss + a.at.scalar_loss, a.size.rows,
                a.size.loss.mean);
  }
}
