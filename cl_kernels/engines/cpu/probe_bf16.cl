// SPDX-License-Identifier: Apache-2.0
// One register tile by the inner loop of DOT_BF16, for the host to compare with its own.
#include "engines/engine.cl"

// c[MICRO_M][TILE_N] = a[MICRO_M][row_step] * b[words][TILE_N]; `half`: a's last word is.
kernel __attribute__((reqd_work_group_size(1, 1, 1))) void probe(global const ushort* a,
                                                                 int row_step,
                                                                 global const int* b, int words,
                                                                 int half_word, global float* c) {
  multiply_strip(c, TILE_N, a, row_step, b, words, half_word, 1);
}
