// SPDX-License-Identifier: Apache-2.0
// One register tile by the inner loop of DOT_BF16, for the host to compare with its own.
#ifndef DOT_BF16
#define DOT_BF16 2  // the default, with which the file compiles by itself
#endif
#include "engines/engine.cl"

#ifndef DOT_BF16_BUILT
#define DOT_BF16_BUILT 1
#endif

// c[MICRO_M][TILE_N] = a[MICRO_M][row_step] * b[words][TILE_N]; `half_word`: a's last word is. The
// element behind them is 1 where the arithmetic is the one that was asked for, else 0.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void probe(global const ushort* a,
                                                                 int row_step, global const int* b,
                                                                 int words, int half_word,
                                                                 global float* c) {
  multiply_strip(c, TILE_N, a, row_step, b, words, half_word, 1);
  c[MICRO_M * TILE_N] = DOT_BF16_BUILT;
}
