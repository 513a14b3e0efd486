// SPDX-License-Identifier: Apache-2.0
// Where the targets of the counted rows are that are not labels, as host and device read it
// (common/arguments.h). Labels have nothing here; common/targets.cl has the forms.
#ifndef TESSERA_TARGETS_H
#define TESSERA_TARGETS_H

#include "common/arguments.h"

KERNEL_STRUCTS_BEGIN(common)

typedef struct {
  // Pairs, [pair][ld], row i of those that count at i: sorted by column, INT_MAX beyond the last.
  INT64 columns;  // from the list of labels on
  INT64 probs;    // place in `values`
  INT64 factors;  // place: probability times class weight
  INT64 logits;   // place: what a pass over the logits finds there
  INT64 ld;
  // Dense: the caller's rows, and the list of those that count, from the list of labels on.
  row_geometry geometry;
  INT64 v_stride;
  INT64 v;  // columns of this call
  INT64 rows;
  // A word's target is hard * probability + smooth.
  float hard, smooth;
  INT32 count;  // pairs
  INT32 unused;
} target_sizes;

KERNEL_STRUCTS_END

#endif
