// SPDX-License-Identifier: Apache-2.0
// Flat rows over up to eight leading axes with any strides, as a kernel argument by value: extents
// outermost first (1 where unused) and strides in elements. A struct and not a long16, whose calling
// convention depends on the CPU's vector extensions.
#ifndef TESSERA_ROWS_CL
#define TESSERA_ROWS_CL

typedef struct {
  long extent[8];
  long stride[8];
} row_geometry;

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
