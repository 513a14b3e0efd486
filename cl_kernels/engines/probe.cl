// SPDX-License-Identifier: Apache-2.0
// A few rows of a product by an engine, for the host to compare with its own (engines/gates.cpp):
// c[m][n] = sum over k of a[m][k] * b[n][k], over one panel of columns.
#define PROBE_A_TYPE PAIR_TYPE
#define PROBE_A_LAYOUT ALONG_SECOND
#define PACK_TYPE PAIR_TYPE
#define PACK_CONTIGUOUS 1
#include "engines/product.cl"  // as probe

// 0: the driver's target lacks what the engine was asked to multiply with, and it built something
// else.
#ifndef PROBE_AS_ASKED
#define PROBE_AS_ASKED 1
#endif

// One work-item.
kernel void pack_probe(global const ELEMENT(PACK_TYPE) * b, int row_step, global operand_word* out,
                       int k_count) {
  PACK_SPACE pack_memory memory;
  for (int column = 0; column < TILE_N; column += PACK_COLUMNS) {
    for (int n = 0; n < PACK_COLUMNS; ++n) memory.start[n] = (long)(column + n) * row_step;
    operand_pack_rows(out, k_count, 0, column, &memory, b, 1, 0, k_count);
  }
}

// The element behind the rows of c is PROBE_AS_ASKED.
kernel PROBE_KERNEL void probe(global const ELEMENT(PROBE_A_TYPE) * a, int row_step, int m_count,
                               global const operand_word* b, int k_count, global float* c,
                               global float* scratch, engine_call e) {
  PROBE_LOCALS(memory);
  const probe_a rows = {a, row_step, 1, m_count, k_count};
  const matrix_b columns = {b, probe_extent(k_count)};
  probe_state p;
  probe_open(&p, &memory, scratch, &e, &rows, &columns, m_count, 0, 1);
  while (probe_next(&p)) {
    engine_tile tile;
    probe_multiply(&p, &tile, 0);
    if (!PROBE_WHOLE_K && !probe_is_complete(&p)) continue;
    PROBE_FOR_ELEMENTS(i, p.now.rows, j) {
      if (probe_row(&p, i) >= p.now.rows) continue;
      LANE_STORE(probe_at(&tile, i, j),
                 c + (p.now.m + probe_row(&p, i)) * TILE_N + probe_column(&p, j));
    }
  }
  if (probe_group() == 0 && get_local_id(0) == 0) c[m_count * TILE_N] = PROBE_AS_ASKED;
}
