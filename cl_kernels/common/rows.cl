// SPDX-License-Identifier: Apache-2.0
// Where flat rows over leading axes lie (row_geometry of common/arguments.h).
#ifndef TESSERA_ROWS_CL
#define TESSERA_ROWS_CL

#include "common/arguments.h"

static inline long row_offset(const row_geometry* geometry, long row) {
  long offset = 0;
  for (int axis = 7; axis > 0; --axis) {
    const long extent = geometry->extent[axis];
    if (extent != 1) {
      offset += row % extent * geometry->stride[axis];
      row /= extent;
    }
  }
  return offset + row * geometry->stride[0];
}

#endif
