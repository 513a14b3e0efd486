// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels of softmax_cross_entropy, as host and device read them
// (common/arguments.h). Strides are in elements of the array they belong to.
#ifndef TESSERA_SOFTMAX_CROSS_ENTROPY_ARGUMENTS_H
#define TESSERA_SOFTMAX_CROSS_ENTROPY_ARGUMENTS_H

#include "common/coefficients.h"
#include "common/targets.h"

KERNEL_STRUCTS_BEGIN(softmax_cross_entropy)

// A part of an array [..., V] of the caller's that one
// buffer reaches: rows begin .. end of the call.
typedef struct {
  row_geometry geometry;
  INT64 v_stride;
  INT64 begin, end;
} logits_segment;

// What every kernel that reads logits takes.
typedef struct {
  logits_segment logits;
  INT64 class_stride;
  INT64 chunk_begin;
  INT64 v_count;
  INT64 v_block;  // columns of a slice
  float scale, cap;
  target_sizes targets;
} read_sizes;

#define FORWARD_MEMORY logits, class_weight, info, rows, labels, values, targets, stats
typedef struct {
  read_sizes read;
  INT32 ld;  // rows of a field of stats
  INT32 unused;
} forward_sizes;
KERNEL_ARGUMENTS(forward, FORWARD_MEMORY)

#define GRADIENT_MEMORY logits, class_weight, info, rows, labels, values, targets, coefficients, out
typedef struct {
  read_sizes read;
  logits_segment out;
  INT32 ld;   // rows of a field of coefficients
  INT32 add;  // 1: to what out holds
} gradient_sizes;
KERNEL_ARGUMENTS(gradient, GRADIENT_MEMORY)

#define VALUE_AND_GRAD_MEMORY \
  logits, class_weight, info, rows, labels, values, targets, stats, coefficients, out
typedef struct {
  read_sizes read;
  logits_segment out;
  loss_sizes loss;
  cotangent_sizes cotangent;
  INT32 ld;  // rows of a field of stats and of coefficients
  INT32 add;
} value_and_grad_sizes;
KERNEL_ARGUMENTS(value_and_grad, VALUE_AND_GRAD_MEMORY)

#define GRADIENT_EXCLUDED_MEMORY labels, out
typedef struct {
  logits_segment out;
  INT64 v_count;
  INT64 v_block;
  INT32 add;
  INT32 unused;
} gradient_excluded_sizes;
KERNEL_ARGUMENTS(gradient_excluded, GRADIENT_EXCLUDED_MEMORY)

KERNEL_STRUCTS_END

#endif
