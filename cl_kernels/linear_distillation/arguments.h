// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels of linear_distillation, as host and device read them
// (common/arguments.h), and what they leave of rows. Those that multiply, and all that gradients of
// x and w take, are linear_cross_entropy's.
#ifndef TESSERA_LINEAR_DISTILLATION_ARGUMENTS_H
#define TESSERA_LINEAR_DISTILLATION_ARGUMENTS_H

#include "common/coefficients.h"
#include "linear/arguments.h"

// How far a student is from its teacher; tessera::linear_distillation::Divergence.
#define FORWARD_KL 0
#define REVERSE_KL 1
#define JSD 2

// Of a row in a slice of the vocabulary: sums over u, the student's logit over the temperature, and
// v, the teacher's, relative to their maxima; SUM_CROSS of exp(v) (v - u), or of exp(u) (u - v) for
// reverse KL. A second look (jsd) has the divergence, KL(q||m) and the sum of q.
#define SUM_MAX_U 0
#define SUM_MAX_V 1
#define SUM_U 2
#define SUM_V 3
#define SUM_CROSS 4
#define SUM_EXP_V 5
#define SUM_FIELDS 6
#define MIX_BOTH 0
#define MIX_Q 1
#define MIX_SUM_Q 2

// Of a counted row, over the whole vocabulary: log q = u - MAX_U - LOG_SUM_U, log p alike. RELATIVE
// is what its gradient is relative to, FACTOR what it is multiplied by.
#define TERM_MAX_U 0
#define TERM_LOG_SUM_U 1
#define TERM_MAX_V 2
#define TERM_LOG_SUM_V 3
#define TERM_RELATIVE 4
#define TERM_FACTOR 5
#define TERM_FIELDS 6

// Of a row, for backward: the caller's divergence_statistics.
#define SAVED_MAX_U 0
#define SAVED_SUM_U 1
#define SAVED_MAX_V 2
#define SAVED_SUM_V 3
#define SAVED_RELATIVE 4
#define SAVED_FIELDS 5

KERNEL_STRUCTS_BEGIN(linear_distillation)

// The teacher's logits of a chunk of rows, from the caller's [..., V]: columns v_base and v_count
// more, to be kept beside the student's.
#define TAKE_LOGITS_MEMORY logits, info, rows, teacher
typedef struct {
  row_geometry geometry;
  INT64 v_stride;
  kept_logits_sizes teacher;
  INT64 chunk_begin;
  INT64 v_base, v_count;
  INT64 panels;
  float scale, cap;
} take_logits_sizes;
KERNEL_ARGUMENTS(take_logits, TAKE_LOGITS_MEMORY)

// Sums over columns of a range, v_block a slice.
#define DIVERGENCE_SUMS_MEMORY info, kept, teacher, terms, sums
typedef struct {
  kept_logits_sizes kept, teacher;
  INT64 chunk_begin;
  INT64 v_count, v_block;
  INT64 term_ld;  // rows of a field of terms
  INT32 panels;
  INT32 first_slice;
  INT32 ld;  // rows of a field of sums
  float inverse_temperature, beta;
  INT32 unused;
} divergence_sums_sizes;
KERNEL_ARGUMENTS(divergence_sums, DIVERGENCE_SUMS_MEMORY)

#define MIXTURE_SUMS_MEMORY DIVERGENCE_SUMS_MEMORY
typedef divergence_sums_sizes mixture_sums_sizes;
KERNEL_ARGUMENTS(mixture_sums, MIXTURE_SUMS_MEMORY)

// Where rows of the caller's arrays lie that are this operator's own.
typedef struct {
  row_geometry divergence, entropy, statistics;
  INT64 statistics_column;
} own_rows;

// From sums of slices to a row's share of the loss, its outputs and its gradient.
#define MERGE_DIVERGENCE_MEMORY \
  sums, info, rows, values, terms, divergence, target_entropy, statistics, partial
typedef struct {
  own_rows own;
  loss_sizes loss;
  cotangent_sizes cotangent;
  INT64 chunk_begin;
  INT64 term_ld;
  INT32 slices;
  INT32 ld;
  float temperature, alpha, beta;
  INT32 unused;
} merge_divergence_sizes;
KERNEL_ARGUMENTS(merge_divergence, MERGE_DIVERGENCE_MEMORY)

#define MERGE_MIXTURE_MEMORY MERGE_DIVERGENCE_MEMORY
typedef merge_divergence_sizes merge_mixture_sizes;
KERNEL_ARGUMENTS(merge_mixture, MERGE_MIXTURE_MEMORY)

// The same from what was saved of the rows.
#define TAKE_TERMS_MEMORY statistics, info, rows, values, terms
typedef struct {
  own_rows own;
  loss_sizes loss;
  cotangent_sizes cotangent;
  INT64 term_ld;
  float temperature, alpha;
} take_terms_sizes;
KERNEL_ARGUMENTS(take_terms, TAKE_TERMS_MEMORY)

// Rows of the call that do not count.
#define EXCLUDED_DIVERGENCE_MEMORY labels, divergence, target_entropy, statistics, partial
typedef struct {
  own_rows own;
  INT64 rows;
} excluded_divergence_sizes;
KERNEL_ARGUMENTS(excluded_divergence, EXCLUDED_DIVERGENCE_MEMORY)

// dz of a chunk of rows and a range of the vocabulary.
#define DISTILL_GRADIENT_MEMORY \
  labels, info, kept, teacher, coefficients, terms, dz, values, targets, bias_lanes
typedef struct {
  logit_sizes logit;
  kept_logits_sizes kept, teacher;
  INT64 chunk_begin;
  INT64 v_base, v_count;
  INT64 v_block;     // columns of a work-item
  INT64 dz_columns;  // extent of dz
  INT64 term_ld;
  INT32 panels;
  INT32 ld;  // rows of a field of coefficients
  float inverse_temperature, beta;
  target_sizes targets;
} distill_gradient_sizes;
KERNEL_ARGUMENTS(distill_gradient, DISTILL_GRADIENT_MEMORY)

KERNEL_STRUCTS_END

#endif
