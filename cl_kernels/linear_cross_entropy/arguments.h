// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels of linear_cross_entropy, as host and device read them
// (common/arguments.h); linear/arguments.h has those that it shares.
#ifndef TESSERA_LINEAR_CROSS_ENTROPY_ARGUMENTS_H
#define TESSERA_LINEAR_CROSS_ENTROPY_ARGUMENTS_H

#include "linear/arguments.h"

KERNEL_STRUCTS_BEGIN(linear_cross_entropy)

// dz of a chunk of tokens against a range of the vocabulary, as in forward.
#define GRADIENT_MEMORY \
  w, bias, class_weight, x, labels, info, coefficients, dz, values, targets, bias_lanes, scratch
typedef struct {
  matrix_sizes w;  // m is v, k is h
  logit_sizes logit;
  INT64 chunk_begin;
  INT64 v_base, v_count;
  INT64 v_block;
  INT64 dz_columns;  // extent of dz
  INT32 h_count;
  INT32 panels;
  INT32 ld;  // tokens of a row of coefficients
  INT32 unused;
  target_sizes targets;
} gradient_sizes;
KERNEL_ARGUMENTS(gradient, GRADIENT_MEMORY)

#define GRADIENT_OF_KEPT_MEMORY \
  class_weight, labels, info, kept, coefficients, dz, values, targets, bias_lanes
typedef struct {
  logit_sizes logit;
  kept_logits_sizes kept;
  INT64 chunk_begin;
  INT64 v_base, v_count;
  INT64 v_block;     // columns of a work-item
  INT64 dz_columns;  // extent of dz
  INT32 panels;
  INT32 ld;
  INT32 first;  // 1: of the chunk, so that sums of grad_bias hold nothing yet
  INT32 unused;
  target_sizes targets;
} gradient_of_kept_sizes;
KERNEL_ARGUMENTS(gradient_of_kept, GRADIENT_OF_KEPT_MEMORY)

KERNEL_STRUCTS_END

#endif
