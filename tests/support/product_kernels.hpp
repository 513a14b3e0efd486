// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Kernels that use nothing of an engine but its contract (cl_kernels/engines/product.cl).
namespace tessera::test {

/// The head of kernels with one product; its types and use are `-D` of the test.
inline constexpr const char* product_head = R"(
#include "engines/product.cl"  // as c
#include "test/product_arguments.h"
#define OPEN                                                                                       \
  C_LOCALS(memory);                                                                                \
  const c_a rows = {left + a.at.left + get_group_id(2) * a.size.left_batch, a.size.a.m_stride,     \
                    a.size.a.k_stride, a.size.a.m_readable, a.size.k_count};                       \
  const matrix_b columns = {right + a.at.right + get_group_id(2) * a.size.right_batch,             \
                            c_extent(a.size.k_count)};                                             \
  c_open(&p, &memory, scratch + a.at.scratch, &e, &rows, &columns, a.size.m_count, a.size.m_part,  \
         (a.size.n_count + TILE_N - 1) / TILE_N);
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
kernel C_KERNEL void visit(global const ELEMENT(C_A_TYPE) * left,
                                global const operand_word* right, global float* out,
                                global float* scratch, visit_arguments a, engine_call e) {
  c_state p;
  OPEN
  global float* to = out + a.at.out + get_group_id(2) * a.size.out_batch;
  while (c_next(&p)) {
    const a_tile now = p.now;
    for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
      engine_tile tile;
      c_multiply(&p, &tile, panel);
      if (!C_WHOLE_K && !c_is_complete(&p)) continue;
      C_FOR_COLUMNS(j) {
        lane_f top = (lane_f)(-INFINITY);
        lane_f sum = (lane_f)(0.0f);
        lane_i at = (lane_i)(INT_MAX);
        C_FOR_ROWS(i, now.rows) {
          if (c_row(&p, i) >= now.rows) continue;
          const lane_f c = (lane_f)(2.0f) * c_at(&tile, i, j);
          c_put(&tile, i, j, c);
          at = c > top ? (lane_i)((int)now.m + c_row(&p, 0) + c_ahead(i)) : at;
          top = c > top ? c : top;
          sum += c;
        }
        const lane_f best = c_max(&p, top);
        const lane_i first = c_first(&p, top == best ? at : (lane_i)(INT_MAX));
        const lane_f total = c_sum(&p, sum);
        // One part is one tile here, so that no other group adds to it.
        if (c_owns(&p)) {
          global float* stats = to + (a.size.m_count + 4 * now.part) * a.size.m_stride +
                                panel * TILE_N + c_column(&p, j);
          LANE_STORE(best, stats);
          LANE_STORE(total, stats + a.size.m_stride);
          LANE_STORE(AS_LANE_F(first), stats + 2 * a.size.m_stride);
          LANE_STORE(LANE_LOAD(stats + 3 * a.size.m_stride) + (lane_f)(1.0f),
                     stats + 3 * a.size.m_stride);
        }
      }
      c_sync(&p);
      C_FOR_ELEMENTS(i, now.rows, j) {
        const int m = c_row(&p, i);
        if (m >= now.rows) continue;
        LANE_STORE(c_at(&tile, i, j),
                   to + (now.m + m) * a.size.m_stride + panel * TILE_N + c_column(&p, j));
      }
    }
  }
}
)";

/// Sums of C in memory, or added to what is there.
inline constexpr const char* accumulate_kernel = R"(
kernel C_KERNEL void accumulate(global const ELEMENT(C_A_TYPE) * left,
                                global const operand_word* right, global float* out,
                                global float* scratch, accumulate_arguments a, engine_call e) {
  c_state p;
  OPEN
  global float* sums = out + a.at.out + get_group_id(2) * a.size.out_batch;
  while (c_next(&p)) {
    for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
      c_accumulate(&p, sums + sums_index(a.size.m_stride, panel, p.now.m), panel,
                   !a.size.add && p.now.k == 0);
    }
  }
}
)";

inline constexpr const char* store_kernel = R"(
kernel C_KERNEL void store(global const ELEMENT(C_A_TYPE) * left,
                                global const operand_word* right,
                                global ELEMENT(C_OUT_TYPE) * out, global float* scratch,
                                store_arguments a, engine_call e) {
  c_state p;
  const c_out to = {out + a.at.out + get_group_id(2) * a.size.out_batch, a.size.m_stride,
                    a.size.n_stride, a.size.n_count, a.size.add};
  p.out = to;
  OPEN
  while (c_next(&p)) {
    for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
      engine_tile tile;
      c_multiply(&p, &tile, panel);
      c_store(&p, &tile, panel);
    }
  }
}
)";

/// C = D f(S), S = A B, in one kernel: f(s) = 1 / (1 + s^2), and every row of S that a tile of it
/// does not have stays unread. Each group forms S again for every tile of C's rows.
inline constexpr const char* two_kernel = R"(
#include "test/product_arguments.h"
#define SCORES_A_TYPE C_A_TYPE
#define SCORES_A_LAYOUT ALONG_SECOND
#include "engines/product.cl"  // as scores
#define C_USE USE_STORE
#define C_B_TILE 1
#define C_OUT_TYPE TYPE_F32
#define C_OUT_LAYOUT ALONG_SECOND
#include "engines/product.cl"  // as c
kernel C_KERNEL void two(global const ELEMENT(C_A_TYPE) * left, global const operand_word* right,
                         global const ELEMENT(C_A_TYPE) * second, global float* out,
                         global float* scratch, two_arguments a, engine_call e, engine_call own) {
  SCORES_LOCALS(memory);
  C_LOCALS(c_memory);
  const scores_a rows = {left + a.at.left, a.size.a.m_stride, a.size.a.k_stride,
                         a.size.a.m_readable, a.size.k_count};
  const matrix_b columns = {right + a.at.right, scores_extent(a.size.k_count)};
  const c_a c_rows = {second + a.at.second, a.size.second.m_stride, a.size.second.k_stride,
                      a.size.second.m_readable, a.size.m_count};
  const c_out to = {out + a.at.out, a.size.m_stride, 1, a.size.n_count, STORE_NEW};
  const int panels = (a.size.n_count + TILE_N - 1) / TILE_N;
  scores_state s;
  scores_open(&s, &memory, scratch + a.at.scratch, &e, &rows, &columns, a.size.m_count, 0, panels);
  c_state c;
  c.out = to;
  c_open(&c, &c_memory, scratch + a.at.scratch + a.size.c_scratch, &own, &c_rows, &columns,
         a.size.c_count, 0, panels);
  while (c_next(&c)) {
    for (int panel = c.panel_begin; panel < c.panel_end; ++panel) {
      engine_tile tile;
      scores_restart(&s, panel);
      while (scores_next(&s)) {
        engine_tile score;
        scores_multiply(&s, &score, panel);
        if (!SCORES_WHOLE_K && !scores_is_complete(&s)) continue;
        SCORES_FOR_ELEMENTS(i, s.now.rows, j) {
          const lane_f z = scores_at(&score, i, j);
          scores_put(&score, i, j, (lane_f)(1.0f) / ((lane_f)(1.0f) + z * z));
        }
        c_multiply_tile(&c, &tile, &score, (int)s.now.m, s.now.rows);
      }
      c_store(&c, &tile, panel);
    }
  }
}
)";

}  // namespace tessera::test
