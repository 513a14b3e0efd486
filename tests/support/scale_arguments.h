// SPDX-License-Identifier: Apache-2.0
// Arguments of the tests' own kernel (opencl_fixture.hpp), as host and device read them
// (common/arguments.h).
#ifndef TESSERA_TEST_SCALE_ARGUMENTS_H
#define TESSERA_TEST_SCALE_ARGUMENTS_H

#include "common/arguments.h"

KERNEL_STRUCTS_BEGIN(test)
#define SCALE_MEMORY x, y
typedef struct {
  INT64 x_row, x_column, y_row, y_column;  // strides
  float factor;
  INT32 add;  // 1: to what y holds
} scale_sizes;
KERNEL_ARGUMENTS(scale, SCALE_MEMORY)
KERNEL_STRUCTS_END

#endif
