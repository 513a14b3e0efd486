// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels of tests/opencl_engine_test.cpp, as host and device read them.
#ifndef TESSERA_PRODUCT_ARGUMENTS_H
#define TESSERA_PRODUCT_ARGUMENTS_H

#include "engines/arguments.h"

KERNEL_STRUCTS_BEGIN(engine_test)

#define PACK_B_MEMORY from, to
typedef struct {
  INT64 row_stride, k_stride;  // of B^T [n][k]
  INT64 n_count, k_count;
  INT64 from_batch, to_batch;  // elements (words) from one product of a batch to the next
} pack_b_sizes;
KERNEL_ARGUMENTS(pack_b, PACK_B_MEMORY)

// One size struct for the three uses; batches are as far apart as the strides say.
#define VISIT_MEMORY left, right, out, scratch
#define ACCUMULATE_MEMORY left, right, out, scratch
#define STORE_MEMORY left, right, out, scratch
typedef struct {
  matrix_sizes a;
  INT64 m_stride, n_stride;  // of out
  INT64 left_batch, right_batch, out_batch;
  INT64 m_part;
  INT32 m_count, n_count, k_count, add;  // add: STORE_* of a stored product
} multiply_sizes;
typedef multiply_sizes visit_sizes;
typedef multiply_sizes accumulate_sizes;
typedef multiply_sizes store_sizes;
KERNEL_ARGUMENTS(visit, VISIT_MEMORY)
KERNEL_ARGUMENTS(accumulate, ACCUMULATE_MEMORY)
KERNEL_ARGUMENTS(store, STORE_MEMORY)

#define TWO_MEMORY left, right, second, out, scratch
typedef struct {
  matrix_sizes a, second;
  INT64 m_stride;   // of out
  INT64 c_scratch;  // words of scratch before those of the second product
  INT32 m_count, n_count, k_count, c_count;
} two_sizes;
KERNEL_ARGUMENTS(two, TWO_MEMORY)

KERNEL_STRUCTS_END

#endif
