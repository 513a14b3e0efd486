// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels of rms_norm, as host and device read them (common/arguments.h). Strides
// are in elements of the array they belong to.
#ifndef TESSERA_RMS_NORM_ARGUMENTS_H
#define TESSERA_RMS_NORM_ARGUMENTS_H

#include "common/arguments.h"

KERNEL_STRUCTS_BEGIN(rms_norm)

// An array [..., H] of the caller's, or the part of it that one buffer reaches: row `begin` of the
// call is its first.
typedef struct {
  row_geometry geometry;
  INT64 stride;
  INT64 begin;
} row_part;

#define NORMALISE_MEMORY x, scale, y
typedef struct {
  row_part x, y;
  INT64 scale_stride;
  INT64 begin, end;  // rows of the call
  INT64 rows;        // of a work-group
  INT64 h;
  float epsilon, offset;
} normalise_sizes;
KERNEL_ARGUMENTS(normalise, NORMALISE_MEMORY)

#define DIFFERENTIATE_MEMORY x, scale, dy, grad_x, sums
typedef struct {
  row_part x, dy, grad_x;
  INT64 scale_stride;
  INT64 begin, end;
  INT64 rows;
  INT64 sum_words;  // of a row of sums, which whole vectors fit
  INT64 known;      // rows of sums that an earlier launch has begun
  INT64 h;
  float epsilon, offset;
  INT32 add;  // 1: to what grad_x holds
  INT32 unused;
} differentiate_sizes;
KERNEL_ARGUMENTS(differentiate, DIFFERENTIATE_MEMORY)

#define MERGE_SUMS_MEMORY sums
typedef struct {
  INT64 groups;  // rows of sums
  INT64 each;    // of a part
  INT64 sum_words;
  INT64 h;
} merge_sums_sizes;
KERNEL_ARGUMENTS(merge_sums, MERGE_SUMS_MEMORY)

#define SUM_SCALE_MEMORY sums, grad_scale
typedef struct {
  INT64 stride;
  INT64 groups;  // rows of sums
  INT64 sum_words;
  INT64 h;
  INT32 add;
  INT32 unused;
} sum_scale_sizes;
KERNEL_ARGUMENTS(sum_scale, SUM_SCALE_MEMORY)

KERNEL_STRUCTS_END

#endif
