// SPDX-License-Identifier: Apache-2.0
// What the kernels of grad_x and grad_w know of gradient filtering: with FILTER, the columns of a
// tile of dz, they are given which tiles count (filter.cl). Without it nothing below is compiled.
#ifndef TESSERA_FILTERED_CL
#define TESSERA_FILTERED_CL

#if FILTER
// Whether a panel of tokens has a tile that counts among columns [begin, end) of the range.
#define COUNTS(panel, begin, end) \
  any_counts(counts + a.at.counts + (long)(panel)*a.size.filter_tiles, begin, end)
static inline int any_counts(global const int* tiles, long begin, long end) {
  int any = 0;
  for (long tile = begin / FILTER; tile * FILTER < end; ++tile) any |= tiles[tile];
  return any;
}
#endif

#endif
