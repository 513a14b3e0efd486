// SPDX-License-Identifier: Apache-2.0
// Flat rows over up to eight leading axes with any strides: the first eight longs of a geometry are
// the extents (1 where unused, outermost first), the last eight the strides in elements.
#ifndef TESSERA_ROWS_CL
#define TESSERA_ROWS_CL

inline long row_offset(long16 geometry, long row) {
  const long8 extents = geometry.lo;
  const long8 strides = geometry.hi;
  long offset = 0;
#define TESSERA_ROW_AXIS(i)                     \
  if (extents.s##i != 1) {                      \
    offset += row % extents.s##i * strides.s##i; \
    row /= extents.s##i;                        \
  }
  TESSERA_ROW_AXIS(7)
  TESSERA_ROW_AXIS(6)
  TESSERA_ROW_AXIS(5)
  TESSERA_ROW_AXIS(4)
  TESSERA_ROW_AXIS(3)
  TESSERA_ROW_AXIS(2)
  TESSERA_ROW_AXIS(1)
#undef TESSERA_ROW_AXIS
  return offset + row * strides.s0;
}

#endif
