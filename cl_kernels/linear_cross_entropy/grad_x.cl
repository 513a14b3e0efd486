// SPDX-License-Identifier: Apache-2.0
// grad_x[row][h] += sum over a range of the vocabulary of dz[row][v] * w[h][v], as tiles [h][token]
// in f32, [panel][h][TILE_N]: A is w transposed by its strides alone, B is dz as it was stored.
#include "common/info.cl"
#include "linear_cross_entropy/operands.cl"

#define A_AT(m, k) W_AT(h_tile + (m), v_panel + (k))
#define A_ROWS_READABLE (h_count - h_tile)
#if W_LAYOUT == W_VH
#define A_CONTIGUOUS_M 1
#define A_VECTOR_M(m, k) W_VECTOR(h_tile + (m), v_panel + (k))
#elif W_LAYOUT == W_HV
#define A_CONTIGUOUS_K 1
#define A_VECTOR_K(m, k) W_VECTOR(h_tile + (m), v_panel + (k))
#endif
#include "engines/engine.cl"

// Work-groups: (group of steps of TILE_M rows of h, group of panels). The vocabulary is walked in
// panels of `v_panel_size`, so that packed w stays in the cache while all panels use it.
// `sums` has h_padded rows a panel, a multiple of what a tile writes.
kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void grad_x(
    W_ARGUMENTS, global const float* dz, long dz_offset, long v_count, int v_panel_size, int h_count,
    int h_padded, int panels, int panels_per_group, global const int* info, long info_offset,
    long chunk_begin, global float* sums, long sums_offset, int first, ENGINE_ARGUMENTS) {
  ENGINE_PANELS
  ENGINE_PROLOGUE
  const long counted = (long)info[info_offset + INFO_COUNT] - chunk_begin;
  const int used = counted <= 0 ? 0 : (int)((counted + TILE_N - 1) / TILE_N);
  const int last = used < panels ? used : panels;
  const int panel_begin = (int)get_group_id(1) * panels_per_group;
  const int panel_end = panel_begin + panels_per_group < last ? panel_begin + panels_per_group : last;
  if (panel_begin >= panel_end) return;
  const int steps = (h_count + TILE_M - 1) / TILE_M;
  for (int step = (int)get_group_id(0); step < steps; step += (int)get_num_groups(0)) {
    const int h_tile = step * TILE_M;
    const int m_count = h_count - h_tile < TILE_M ? h_count - h_tile : TILE_M;
    for (long v_panel = 0; v_panel < v_count; v_panel += v_panel_size) {
      const int depth = v_count - v_panel < v_panel_size ? (int)(v_count - v_panel) : v_panel_size;
      const int fresh = first && v_panel == 0;
      ENGINE_LOAD_A(m_count, depth)
      for (int panel = panel_begin; panel < panel_end; ++panel) {
        global float* tile = sums + sums_offset + ((long)panel * h_padded + h_tile) * TILE_N;
        ENGINE_MULTIPLY_GLOBAL(tile, TILE_N,
                               dz + dz_offset + ((long)panel * v_count + v_panel) * TILE_N, m_count,
                               depth, fresh)
      }
    }
  }
}
