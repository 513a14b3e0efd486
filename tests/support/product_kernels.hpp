// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Kernels that use nothing of an engine but its contract (cl_kernels/engines/engine.cl).
namespace tessera::test {

inline constexpr const char* product_common = R"(
#define PANELS ((a.size.n_count + TILE_N - 1) / TILE_N)
#define WALK                                                                              \
  const matrix_a matrix = {left + a.at.left + BATCH_INDEX * a.size.left_batch,            \
                           a.size.a.m_stride, a.size.a.k_stride, a.size.a.m_readable,     \
                           a.size.k_count};                                               \
  const matrix_b columns = {right + a.at.right + BATCH_INDEX * a.size.right_batch,        \
                            OPERAND_EXTENT(a.size.k_count)};                              \
  const tile_walk walk = {a.size.m_count, a.size.m_part, e.parts, e.tile_m,               \
                          (int)WORDS(a.size.k_count), e.k_step, A_STRIP};                 \
  const int begin = PANEL_BEGIN;                                                          \
  const int end = PANEL_END(PANELS);                                                      \
  a_tile now, next;                                                                       \
  walk_start(&walk, ENGINE_GROUP, &next);                                                 \
  ENGINE_LOAD
#define TURN                               \
  ENGINE_TURN                              \
  now = next;                              \
  walk_next(&walk, ENGINE_GROUPS, &next);
)";

inline constexpr const char* pack_kernel = R"(
#define PACK_TYPE TYPE_F32
#define PACK_CONTIGUOUS 0
#include "engines/operand.cl"
#include "test/product_arguments.h"
kernel void pack_b(global const float* from, global operand_word* to, pack_b_arguments a) {
  const long panel = get_global_id(0);
  const long batch = get_global_id(1);
  PACK_SPACE pack_memory memory;
  for (int column = 0; column < TILE_N; column += PACK_COLUMNS) {
    for (int n = 0; n < PACK_COLUMNS; ++n) {
      const long row = panel * TILE_N + column + n;
      memory.start[n] = row < a.size.n_count ? row * a.size.row_stride : ROW_PADDING;
    }
    operand_pack_rows(to + a.at.to + batch * a.size.to_batch, a.size.k_count, panel, column,
                      &memory, from + a.at.from + batch * a.size.from_batch, a.size.k_stride, 0,
                      a.size.k_count);
  }
}
)";

/// out[m][n] = 2 C, and behind its rows the largest and the sum of each column of a part, the index
/// of the largest, and whether exactly one work-item owned the column.
inline constexpr const char* visit_kernel = R"(
kernel ENGINE_KERNEL void visit(global const ELEMENT(A_TYPE) * left,
                                global const operand_word* right, global float* out,
                                global float* scratch, visit_arguments a, engine_call e) {
  ENGINE_LOCALS
  ENGINE_SETUP(scratch + a.at.scratch)
  WALK
  global float* to = out + a.at.out + BATCH_INDEX * a.size.out_batch;
  while (next.rows > 0) {
    TURN
    for (int panel = begin; panel < end; ++panel) {
      c_tile tile = ENGINE_TILE(panel - begin);
      ENGINE_MULTIPLY(tile, columns, panel, panel - begin, end - begin)
      if (!TILE_COMPLETE) continue;
      FOR_COLUMNS(column) {
        lane_f top = (lane_f)(-INFINITY);
        lane_f sum = (lane_f)(0.0f);
        lane_i at = (lane_i)(INT_MAX);
        FOR_ROWS(m, now.rows) {
          const lane_f c = (lane_f)(2.0f) * TILE_AT(tile, m, column);
          TILE_SET(tile, m, column, c);
          at = c > top ? (lane_i)((int)now.m + m) : at;
          top = c > top ? c : top;
          sum += c;
        }
        const lane_f best = COLUMN_MAX(top);
        const lane_i first = COLUMN_MIN_INDEX(top == best ? at : (lane_i)(INT_MAX));
        const lane_f total = COLUMN_SUM(sum);
        // One part is one tile here, so that the owner writes what nobody else adds to.
        if (COLUMN_OWNER) {
          global float* stats = to + (a.size.m_count + 4 * now.part) * a.size.m_stride +
                                panel * TILE_N + column;
          LANE_STORE(best, stats);
          LANE_STORE(total, stats + a.size.m_stride);
          LANE_STORE(AS_LANE_F(first), stats + 2 * a.size.m_stride);
          LANE_STORE(LANE_LOAD(stats + 3 * a.size.m_stride) + (lane_f)(1.0f),
                     stats + 3 * a.size.m_stride);
        }
        COLUMN_SYNC
      }
      FOR_ELEMENTS(m, now.rows, column) {
        LANE_STORE(TILE_AT(tile, m, column),
                   to + (now.m + m) * a.size.m_stride + panel * TILE_N + column);
      }
    }
  }
}
)";

/// Sums of C in memory, or added to what is there, rescaled column by column.
inline constexpr const char* accumulate_kernel = R"(
kernel ENGINE_KERNEL void accumulate(global const ELEMENT(A_TYPE) * left,
                                     global const operand_word* right, global float* out,
                                     global const float* factors, global float* scratch,
                                     accumulate_arguments a, engine_call e) {
  ENGINE_LOCALS
  ENGINE_SETUP(scratch + a.at.scratch)
  WALK
  global float* sums = out + a.at.out + BATCH_INDEX * a.size.out_batch;
  while (next.rows > 0) {
    TURN
    for (int panel = begin; panel < end; ++panel) {
      global float* tile = sums + sums_index(a.size.m_stride, panel, now.m);
      if (a.size.add && now.k == 0) {
        ENGINE_RESCALE(tile, now.rows, factors + a.at.factors + panel * TILE_N)
      }
      ENGINE_ACCUMULATE(tile, columns, panel, panel - begin, end - begin,
                        !a.size.add && now.k == 0)
    }
  }
}
)";

inline constexpr const char* store_kernel = R"(
kernel ENGINE_KERNEL void store(global const ELEMENT(A_TYPE) * left,
                                global const operand_word* right,
                                global ELEMENT(OUT_TYPE) * out, global float* scratch,
                                store_arguments a, engine_call e) {
  ENGINE_LOCALS
  ENGINE_SETUP(scratch + a.at.scratch)
  WALK
  while (next.rows > 0) {
    TURN
    for (int panel = begin; panel < end; ++panel) {
      c_tile tile = ENGINE_TILE(0);
      ENGINE_MULTIPLY(tile, columns, panel, panel - begin, end - begin)
      global ELEMENT(OUT_TYPE)* to = out + a.at.out + BATCH_INDEX * a.size.out_batch +
                                     now.m * a.size.m_stride + panel * TILE_N * a.size.n_stride;
      ENGINE_STORE(tile, to, a.size.m_stride, a.size.n_stride, now.rows,
                   min(a.size.n_count - panel * TILE_N, TILE_N), a.size.add)
    }
  }
}
)";

}  // namespace tessera::test
