// SPDX-License-Identifier: Apache-2.0
// Copies an array into another layout: kernels of callers find arrays dense.
#include "common/rows.cl"
#include "custom/arguments.h"

// An unsigned integer of the element's size. A default, with which this file compiles by itself.
#ifndef WORD
#define WORD uint
#endif

// One work-item for each element.
kernel void copy_elements(global const WORD* from, global WORD* to, copy_elements_arguments a) {
  const long i = (long)get_global_id(0);
  if (i >= a.size.count) return;
  to[a.at.to + row_offset(&a.size.to_layout, i)] =
      from[a.at.from + row_offset(&a.size.from_layout, i)];
}
