// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels that operators share whose logits are a product, as host and device read
// them (common/arguments.h). Strides are in elements of the array they belong to.
#ifndef TESSERA_LINEAR_ARGUMENTS_H
#define TESSERA_LINEAR_ARGUMENTS_H

#include "common/targets.h"
#include "engines/arguments.h"

KERNEL_STRUCTS_BEGIN(linear)

// A part of an array [..., H] of the caller's that one
// buffer reaches: rows begin .. end of the call.
typedef struct {
  row_geometry geometry;
  INT64 h_stride;
  INT64 begin, end;
} row_segment;

// From a product to a logit.
typedef struct {
  INT64 bias_stride, class_stride;
  float scale, cap;
} logit_sizes;

// Logits that forward keeps for gradients: TILE_N tokens side by side, columns and panels of tokens
// any strides apart, counted in 16 bits.
typedef struct {
  INT64 panel_stride, v_stride;
} kept_logits_sizes;

// x, packed for x w and for dz^T x.
#define PACK_ROWS_MEMORY x, info, rows, out
typedef struct {
  row_segment x;
  INT64 chunk_begin;
  INT64 h_count;
  INT64 panels;
} pack_rows_sizes;
KERNEL_ARGUMENTS(pack_rows, PACK_ROWS_MEMORY)

#define PACK_COLUMNS_MEMORY x, info, rows, out
typedef struct {
  row_segment x;
  INT64 chunk_begin;
  INT64 h_count;
  INT64 row_count;  // of the chunk
} pack_columns_sizes;
KERNEL_ARGUMENTS(pack_columns, PACK_COLUMNS_MEMORY)

// Logits of a chunk of tokens against a range of the vocabulary: v counts from its first column,
// whose index in the call is v_base.
#define FORWARD_MEMORY w, bias, class_weight, x, labels, info, stats, kept, values, targets, scratch
typedef struct {
  matrix_sizes w;  // m is v, k is h
  logit_sizes logit;
  kept_logits_sizes kept;
  INT64 chunk_begin;
  INT64 v_base, v_count;
  INT64 v_block;  // columns of a slice
  INT32 h_count;
  INT32 panels;  // of tokens in the chunk
  INT32 first_slice;
  INT32 ld;  // tokens of a row of statistics
  target_sizes targets;
} forward_sizes;
KERNEL_ARGUMENTS(forward, FORWARD_MEMORY)

#define SUM_BIAS_MEMORY dz, sums
typedef struct {
  INT64 dz_columns;
  INT64 v_count;
  INT64 v_block;  // columns of a group
  INT32 panels;
  INT32 first;  // 1: the sums hold nothing yet
} sum_bias_sizes;
KERNEL_ARGUMENTS(sum_bias, SUM_BIAS_MEMORY)

#define SUM_BIAS_LANES_MEMORY bias_lanes, sums
typedef struct {
  INT64 v_count;
  INT32 first;  // 1: the sums hold nothing yet
  INT32 unused;
} sum_bias_lanes_sizes;
KERNEL_ARGUMENTS(sum_bias_lanes, SUM_BIAS_LANES_MEMORY)

#define FIT_F16_MEMORY coefficients, scale
typedef struct {
  float logit_scale;  // its absolute value
  INT32 ld;           // tokens of a row of coefficients
} fit_f16_sizes;
KERNEL_ARGUMENTS(fit_f16, FIT_F16_MEMORY)

#define MARK_MEMORY dz, coefficients, counts
typedef struct {
  INT64 dz_columns;
  INT64 v_count;
  INT32 panels;
  INT32 ld;
  float eps;
  INT32 tiles;  // of a panel
} mark_sizes;
KERNEL_ARGUMENTS(mark, MARK_MEMORY)

#define GRAD_W_MEMORY dz, x, info, out, counts, scale, scratch
typedef struct {
  INT64 dz_columns;
  INT64 v_count;
  INT64 chunk_begin;
  INT64 h_stride, v_stride;  // of out
  INT32 row_count;           // tokens of the chunk
  INT32 h_count;
  INT32 panels;  // of h
  INT32 store;   // STORE_* of engines/arguments.h
  INT32 filter_tiles;
  INT32 unused;
} grad_w_sizes;
KERNEL_ARGUMENTS(grad_w, GRAD_W_MEMORY)

#define WRITE_W_MEMORY sums, out
typedef struct {
  INT64 sums_v_stride;
  INT64 h_stride, v_stride;  // of out
  INT64 h_count, v_count;
  INT32 add;
  INT32 unused;
} write_w_sizes;
KERNEL_ARGUMENTS(write_w, WRITE_W_MEMORY)

#define GRAD_X_MEMORY w, dz, info, sums, counts, scratch
typedef struct {
  matrix_sizes w;  // m is h, k is v
  INT64 dz_columns;
  INT64 chunk_begin;
  INT64 v_part;     // columns of a part of the range, which has sums of its own
  INT64 sums_part;  // from the sums of one part to the next
  INT32 v_count;
  INT32 h_count;
  INT32 h_padded;  // rows of a panel of sums
  INT32 panels;    // of tokens
  INT32 first;     // 1: the sums hold nothing yet
  INT32 filter_tiles;
} grad_x_sizes;
KERNEL_ARGUMENTS(grad_x, GRAD_X_MEMORY)

#define WRITE_ROWS_MEMORY sums, info, rows, scale, out
typedef struct {
  row_segment out;
  INT64 chunk_begin;
  INT64 h_count, row_count;
  INT64 sums_part;
  INT32 h_padded;
  INT32 add;
  INT32 parts;  // that are summed
  INT32 unused;
} write_rows_sizes;
KERNEL_ARGUMENTS(write_rows, WRITE_ROWS_MEMORY)

#define WRITE_EXCLUDED_MEMORY labels, out
typedef struct {
  row_segment out;
  INT64 h_count;
  INT32 add;
  INT32 unused;
} write_excluded_sizes;
KERNEL_ARGUMENTS(write_excluded, WRITE_EXCLUDED_MEMORY)

KERNEL_STRUCTS_END

#endif
