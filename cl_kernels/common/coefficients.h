// SPDX-License-Identifier: Apache-2.0
// What the loss of a row and its gradient depend on beside the logits, as host and device read it
// (common/arguments.h).
//
// The numbers that a call has for each of its rows are dense f32 arrays of one region, which the
// kernels call `values`. A place is the element of the region at which an array begins, -1 where
// there is none.
#ifndef TESSERA_COEFFICIENTS_H
#define TESSERA_COEFFICIENTS_H

#include "common/arguments.h"

KERNEL_STRUCTS_BEGIN(common)

typedef struct {
  INT64 class_of_label;  // place: weight of the class that the label is of; of other targets the
                         // sum of probability times class weight
  INT64 weight;          // place; none: 1 for every row
  float logsumexp_weight;
  float label_smoothing;
  float v_total;
  INT32 mean;  // 1: the loss is divided by the denominator of the call
  INT64 term;  // place: what the loss of a row has besides; none: nothing, and nll_weight is 1
  float nll_weight;
  INT32 has_targets;  // 0: rows have none, and nll_weight is 0
} loss_sizes;

typedef struct {
  INT64 dloss;         // place; none: 1
  INT64 dloss_stride;  // 0: one for all rows
  INT64 dlse;          // place; none: 0
} cotangent_sizes;

// Statistics of whole rows: (max, sum), or lse in place of max where there is no sum.
typedef struct {
  INT64 max;  // place
  INT64 sum;  // place
  INT64 stride;
} row_statistics;

KERNEL_STRUCTS_END

#endif
