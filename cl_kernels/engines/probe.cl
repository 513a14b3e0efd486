// SPDX-License-Identifier: Apache-2.0
// A few rows of a product by an engine, for the host to compare with its own (engines/gates.cpp):
// c[m][n] = sum over k of a[m][k] * b[n][k], over one panel of columns.
#define A_TYPE TYPE_BF16
#define A_LAYOUT ALONG_SECOND
#define PACK_TYPE TYPE_BF16
#define PACK_CONTIGUOUS 1
#include "engines/arguments.h"
#include "engines/engine.cl"

// 0: the driver's target lacks what the engine was asked to multiply with, and it built something
// else.
#ifndef ENGINE_AS_ASKED
#define ENGINE_AS_ASKED 1
#endif

// One work-item.
kernel void pack_probe(global const ushort* b, int row_step, global operand_word* out,
                       int k_count) {
  PACK_SPACE pack_memory memory;
  for (int column = 0; column < TILE_N; column += PACK_COLUMNS) {
    for (int n = 0; n < PACK_COLUMNS; ++n) memory.start[n] = (long)(column + n) * row_step;
    operand_pack_rows(out, k_count, 0, column, &memory, b, 1, 0, k_count);
  }
}

// The element behind the rows of c is ENGINE_AS_ASKED.
kernel ENGINE_KERNEL void probe(global const ushort* a, int row_step, int m_count,
                                global const operand_word* b, int k_count, global float* c,
                                global float* scratch, engine_call e) {
  ENGINE_LOCALS
  ENGINE_SETUP(scratch)
  const matrix_a matrix = {a, row_step, 1, m_count, k_count};
  const matrix_b columns = {b, OPERAND_EXTENT(k_count)};
  const tile_walk walk = {m_count, 0, e.parts, e.tile_m, (int)WORDS(k_count), e.k_step, A_STRIP};
  a_tile now, next;
  walk_start(&walk, ENGINE_GROUP, &next);
  ENGINE_LOAD
  while (next.rows > 0) {
    ENGINE_TURN
    now = next;
    walk_next(&walk, ENGINE_GROUPS, &next);
    c_tile tile = ENGINE_TILE(0);
    ENGINE_MULTIPLY(tile, columns, 0, 0, 1)
    if (!TILE_COMPLETE) continue;
    FOR_ELEMENTS(m, now.rows, column) {
      LANE_STORE(TILE_AT(tile, m, column), c + (now.m + m) * TILE_N + column);
    }
  }
  if (ENGINE_GROUP == 0 && get_local_id(0) == 0) c[m_count * TILE_N] = ENGINE_AS_ASKED;
}
