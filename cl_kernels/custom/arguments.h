// SPDX-License-Identifier: Apache-2.0
// Arguments of the kernels that prepare a call of a custom kernel, as host and device read them
// (common/arguments.h).
#ifndef TESSERA_CUSTOM_ARGUMENTS_H
#define TESSERA_CUSTOM_ARGUMENTS_H

#include "common/arguments.h"

KERNEL_STRUCTS_BEGIN(custom)

#define COPY_ELEMENTS_MEMORY from, to
typedef struct {
  row_geometry from_layout, to_layout;  // of the elements, not of rows
  INT64 count;
} copy_elements_sizes;
KERNEL_ARGUMENTS(copy_elements, COPY_ELEMENTS_MEMORY)

KERNEL_STRUCTS_END

#endif
