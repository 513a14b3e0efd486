// SPDX-License-Identifier: Apache-2.0
// What the kernels of grad_x and grad_w know of gradient filtering: with FILTER, the columns of a tile
// of dz, they are given what filter.cl found out. Without it nothing below is compiled.
#ifndef TESSERA_KEPT_CL
#define TESSERA_KEPT_CL

#if FILTER
#define KEPT_ARGUMENTS , global const int *kept, long kept_offset, int kept_tiles

// Whether a panel of tokens has a tile to keep among columns [begin, end) of the range.
#define KEPT(panel, begin, end) \
  any_kept(kept + kept_offset + (long)(panel)*kept_tiles, begin, end)
static inline int any_kept(global const int* tiles, long begin, long end) {
  int any = 0;
  for (long tile = begin / FILTER; tile * FILTER < end; ++tile) any |= tiles[tile];
  return any;
}
#else
#define KEPT_ARGUMENTS
#endif

#endif
