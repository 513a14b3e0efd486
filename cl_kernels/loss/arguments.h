// SPDX-License-Identifier: Apache-2.0
// Arguments of the per-row kernels of a loss, as host and device read them (common/arguments.h).
// Strides are in elements of the array they belong to; places as in common/coefficients.h.
#ifndef TESSERA_LOSS_ARGUMENTS_H
#define TESSERA_LOSS_ARGUMENTS_H

#include "common/coefficients.h"
#include "common/targets.h"

KERNEL_STRUCTS_BEGIN(loss)

// What rows that follow each other come to: those that count and those out of range, and a sum,
// which is high + low, and `plain` where terms are not finite.
typedef struct {
  INT64 first_bad;  // of the call's rows, where there is one
  INT32 count, bad;
  float high, low, plain;
  INT32 unused;
} row_run;
// Of a work-item, of a group, and work-items of a group. Sums are rounded by these, whatever the
// device. 64 is what every device can run.
#define RUN_ROWS 16
#define RUN_ITEMS 64
#define RUN_BLOCK 1024

// The rows of a call, and where its lists of them are: elements of one region of ints, `lists`.
typedef struct {
  INT64 rows;
  INT64 v, v_total;  // columns of this call, of the whole vocabulary
  INT64 vocab_offset;
  INT64 ignore_index;
  INT64 class_stride;
  INT64 class_of_label, weight;  // places in `values`
  INT64 share;           // place: of the row in the mean's denominator; labels: their class's
  INT64 labels;          // list: label of every row, or LABEL_*
  INT64 counted_rows;    // list: the rows that count
  INT64 counted_labels;  // list: their labels, and `padding` more
  INT64 padding;
  INT64 runs;        // list: a row_run for each block of rows
  INT64 class_runs;  // list: one for each block of class weights; -1: their total is not needed
} call_rows;

// The outputs of a row. Every kernel that writes them takes all, null where not asked for.
#define ROW_OUTPUTS_MEMORY loss, lse, argmax, label_logprob, entropy, z_loss, statistics, partial
typedef struct {
  INT64 loss, lse, argmax, label_logprob, entropy, z_loss, statistics;
  INT64 statistics_column;  // from max to sum
} row_output_strides;

// Rows between an array of the caller's and a dense one.
typedef struct {
  row_geometry geometry;  // of the caller's rows
  INT64 column_stride;
  INT64 width;  // columns
  INT64 rows;
} row_copy;

#define GATHER_LABELS_MEMORY labels, class_weight, lists, values
typedef struct {
  row_geometry geometry;  // of labels
  call_rows call;
} gather_labels_sizes;
KERNEL_ARGUMENTS(gather_labels, GATHER_LABELS_MEMORY)

// Pairs of index and probability, as the caller has them.
typedef struct {
  row_geometry index_rows, prob_rows;
  INT64 index_stride, prob_stride;  // from pair to pair
} given_pairs;

#define GATHER_PAIRS_MEMORY indices, probs, class_weight, lists, values
typedef struct {
  given_pairs given;
  call_rows call;
  target_sizes targets;
} gather_pairs_sizes;
KERNEL_ARGUMENTS(gather_pairs, GATHER_PAIRS_MEMORY)

#define SORT_PAIRS_MEMORY indices, probs, class_weight, lists, values
typedef gather_pairs_sizes sort_pairs_sizes;
KERNEL_ARGUMENTS(sort_pairs, SORT_PAIRS_MEMORY)

// `sums` is null where the device adds up.
#define GATHER_DENSE_MEMORY targets, class_weight, sums, lists, values
typedef struct {
  call_rows call;
  target_sizes targets;
} gather_dense_sizes;
KERNEL_ARGUMENTS(gather_dense, GATHER_DENSE_MEMORY)

#define GATHER_VALUES_MEMORY values, out
typedef row_copy gather_values_sizes;
KERNEL_ARGUMENTS(gather_values, GATHER_VALUES_MEMORY)

#define SCATTER_ROWS_MEMORY values, out
typedef struct {
  row_copy copy;
  INT64 to_i64;  // 1: values are i32, and the caller's elements i64
} scatter_rows_sizes;
KERNEL_ARGUMENTS(scatter_rows, SCATTER_ROWS_MEMORY)

#define SUM_CLASSES_MEMORY class_weight, lists
typedef struct {
  call_rows call;
} sum_classes_sizes;
KERNEL_ARGUMENTS(sum_classes, SUM_CLASSES_MEMORY)

#define COUNT_ROWS_MEMORY lists, values
typedef struct {
  call_rows call;
} count_rows_sizes;
KERNEL_ARGUMENTS(count_rows, COUNT_ROWS_MEMORY)

#define COMPACT_MEMORY lists, values, info
typedef struct {
  call_rows call;
} compact_sizes;
KERNEL_ARGUMENTS(compact, COMPACT_MEMORY)

#define SUM_LOSSES_MEMORY row_loss, lists
typedef struct {
  INT64 rows;
  INT64 runs;  // list: a row_run for each block of rows
} sum_losses_sizes;
KERNEL_ARGUMENTS(sum_losses, SUM_LOSSES_MEMORY)

#define REDUCE_LOSS_MEMORY row_loss, lists, loss
typedef struct {
  INT64 rows;
  INT64 runs;
  INT32 mean;
  INT32 unused;
} reduce_loss_sizes;
KERNEL_ARGUMENTS(reduce_loss, REDUCE_LOSS_MEMORY)

#define FILL_EXCLUDED_MEMORY labels, ROW_OUTPUTS_MEMORY
typedef struct {
  row_output_strides strides;
  INT64 rows;
} fill_excluded_sizes;
KERNEL_ARGUMENTS(fill_excluded, FILL_EXCLUDED_MEMORY)

#define MERGE_MEMORY stats, info, rows, values, ROW_OUTPUTS_MEMORY
typedef struct {
  row_output_strides strides;
  loss_sizes loss;
  row_statistics merged;  // where gradients find them; max -1: nowhere
  target_sizes targets;
  INT64 chunk_begin;
  INT32 slices;
  INT32 ld;  // rows of a field of stats
} merge_sizes;
KERNEL_ARGUMENTS(merge, MERGE_MEMORY)

#define COEFFICIENTS_MEMORY out, info, rows, values
typedef struct {
  loss_sizes loss;
  cotangent_sizes cotangent;
  row_statistics given;
  INT64 chunk_begin;
  INT32 ld;  // rows of a field of out
  INT32 unused;
} coefficients_sizes;
KERNEL_ARGUMENTS(coefficients, COEFFICIENTS_MEMORY)

#define PREPARE_SMALL_MEMORY labels, class_weight, lists, values, info, ROW_OUTPUTS_MEMORY
typedef struct {
  row_geometry geometry;  // of labels
  call_rows call;
  row_output_strides strides;
  INT32 wants_values;  // 1: outputs of rows that do not count are filled
  INT32 unused;
} prepare_small_sizes;
KERNEL_ARGUMENTS(prepare_small, PREPARE_SMALL_MEMORY)

// `out` is null where no coefficients are wanted, `scalar_loss` where no row losses are summed.
#define FINISH_SMALL_MEMORY stats, info, rows, values, ROW_OUTPUTS_MEMORY, out, scalar_loss
typedef struct {
  row_output_strides strides;
  loss_sizes loss;
  cotangent_sizes cotangent;
  row_statistics merged;
  target_sizes targets;
  INT64 rows;  // of the call
  INT32 slices;
  INT32 ld;  // rows of a field of stats and of out
} finish_small_sizes;
KERNEL_ARGUMENTS(finish_small, FINISH_SMALL_MEMORY)

KERNEL_STRUCTS_END

#endif
