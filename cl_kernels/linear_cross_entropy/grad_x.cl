// SPDX-License-Identifier: Apache-2.0
// grad_x[row][h] += sum over a range of the vocabulary of dz[row][v] * w[h][v], as tiles [h][token]
// in f32, [panel][h][TILE_N]: A is w transposed by its strides alone, B is dz as it was stored.
#include "common/info.cl"
#include "linear_cross_entropy/kept.cl"
#include "linear_cross_entropy/operands.cl"

// Rows h .. h + rows of w, columns v .. v + depth.
typedef struct {
  int step;
  int rows, depth;
  long h, v;
} w_tile;

#define A_AT(tile, m, k) W_AT(tile.h + (m), tile.v + (k))
#define A_ROWS_READABLE(tile) (int)(h_count - tile.h)
#define A_TYPE W_TYPE
#define A_ADDRESSES (W_LAYOUT != W_STRIDED)
#define A_ADDRESS(tile, m, k) (w + W_INDEX(tile.h + (m), tile.v + (k)))
#if W_LAYOUT == W_VH
#define A_CONTIGUOUS_M 1
#define A_VECTOR_M(tile, m, k) W_VECTOR(tile.h + (m), tile.v + (k))
#elif W_LAYOUT == W_HV
#define A_CONTIGUOUS_K 1
#define A_VECTOR_K(tile, m, k) W_VECTOR(tile.h + (m), tile.v + (k))
#if W_TYPE == TYPE_F32
#define A_IN_PLACE 1
#define A_POINTER(tile, m) A_ADDRESS(tile, m, 0)
#define A_ROW_STEP w_h_stride
#endif
#endif
#if FILTER
// Panels of the vocabulary begin at multiples of FILTER.
#define K_KEPT(k) KEPT(panel, now.v + (k), now.v + (k) + 1)
#define K_KEPT_STEP FILTER
#endif
#include "engines/engine.cl"

#define TILE_EXTENTS                                                                          \
  next.h = STEP_BEGIN(next.step, steps, h_count);                                             \
  next.rows = (int)(STEP_BEGIN(next.step + 1, steps, h_count) - next.h);                      \
  next.depth = v_count - next.v < v_panel_size ? (int)(v_count - next.v) : v_panel_size;

#if FILTER
// Whether any panel of tokens keeps something of the tile `next`, or has sums that it must clear.
#define TILE_WANTED                                                                           \
  (next.rows == 0 || (first && next.v == 0) ||                                                \
   any_panel_kept(kept + kept_offset, kept_tiles, panel_begin, panel_end, next.v,             \
                  next.v + next.depth))
static inline int any_panel_kept(global const int* kept, int kept_tiles, int begin, int end,
                                 long v_begin, long v_end) {
  int any = 0;
  for (int panel = begin; panel < end; ++panel) {
    any |= any_kept(kept + (long)panel * kept_tiles, v_begin, v_end);
  }
  return any;
}
#else
#define TILE_WANTED 1
#endif

// Work-groups: (group of steps of at most TILE_M rows of h, group of panels). The vocabulary is walked in
// panels of `v_panel_size`, so that packed w stays in the cache while all panels use it.
// `sums` has h_padded rows a panel, a multiple of what a tile writes.
kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void grad_x(
    W_ARGUMENTS, global const float* dz, long dz_offset, long dz_columns, long v_count,
    int v_panel_size, int h_count, int h_padded, int panels, int panels_per_group, global const int* info, long info_offset,
    long chunk_begin, global float* sums, long sums_offset, int first, int steps, ENGINE_ARGUMENTS
    KEPT_ARGUMENTS) {
  ENGINE_PANELS
  ENGINE_PROLOGUE
  const long counted = (long)info[info_offset + INFO_COUNT] - chunk_begin;
  const int used = counted <= 0 ? 0 : (int)((counted + TILE_N - 1) / TILE_N);
  const int last = used < panels ? used : panels;
  const int panel_begin = (int)get_group_id(1) * panels_per_group;
  const int panel_end = panel_begin + panels_per_group < last ? panel_begin + panels_per_group : last;
  if (panel_begin >= panel_end) return;
  w_tile now, next;
  next.step = (int)get_group_id(0);
  next.v = 0;
  TILE_EXTENTS
  ENGINE_LOAD_ALL
  while (next.rows > 0) {
    ENGINE_TURN
    now = next;
    do {
      next.v += v_panel_size;
      if (next.v >= v_count) {
        next.v = 0;
        next.step += (int)get_num_groups(0);
      }
      TILE_EXTENTS
    } while (!TILE_WANTED);
    const int fresh = first && now.v == 0;
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      global float* tile = sums + sums_offset + ((long)panel * h_padded + now.h) * TILE_N;
      ENGINE_MULTIPLY_GLOBAL(tile, TILE_N, dz + dz_offset + ((long)panel * dz_columns + now.v) * TILE_N,
                             now.rows, now.depth, fresh, panel - panel_begin,
                             panel_end - panel_begin)
    }
  }
}
