// SPDX-License-Identifier: Apache-2.0
// grad_w[h][v] (+)= sum over the rows of a chunk of x[row][h] * dz[row][v], as tiles [v][h]: A is dz,
// whose rows of tokens lie in panels, B is x packed by columns. Written with the caller's type and
// strides when the chunk is all there is, else accumulated in f32.
#include "common/info.cl"
#include "linear_cross_entropy/operands.cl"

// dz lies as [panel][v][TILE_N]: TILE_N tokens side by side, then the next panel.
#define A_INDEX(m, k) \
  (((long)((k) / TILE_N) * v_count + v_tile + (m)) * TILE_N + (k) % TILE_N)
#define A_AT(m, k) dz[dz_offset + A_INDEX(m, k)]
#define A_CONTIGUOUS_K 1
#define A_VECTOR_K(m, k) LANE_LOAD(dz + dz_offset + A_INDEX(m, k))
#include "engines/engine.cl"

// Work-groups: (group of steps of TILE_M columns of the vocabulary, group of panels of h).
// `add`: the sum is added to what `out` holds. h is contiguous in `out` where OUT_LAYOUT says so.
kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void grad_w(
    global const float* dz, long dz_offset, long v_count, int row_count,
    global const float* x_base, long x_offset, int h_count, int panels, int panels_per_group,
    global const int* info, long info_offset, long chunk_begin, global ELEMENT(OUT_TYPE) * out,
    long out_offset, long out_h_stride, long out_v_stride, int add, ENGINE_ARGUMENTS) {
  ENGINE_LOCALS
  ENGINE_PROLOGUE
  ENGINE_TILE
  const int panel_begin = (int)get_group_id(1) * panels_per_group;
  const int panel_end =
      panel_begin + panels_per_group < panels ? panel_begin + panels_per_group : panels;
  const long counted = (long)info[info_offset + INFO_COUNT] - chunk_begin;
  const int depth = counted <= 0 ? 0 : counted < row_count ? (int)counted : row_count;
  const long steps = (v_count + TILE_M - 1) / TILE_M;
  for (long step = get_group_id(0); step < steps; step += get_num_groups(0)) {
    const long v_tile = step * TILE_M;
    const int m_count = v_count - v_tile < TILE_M ? (int)(v_count - v_tile) : TILE_M;
    ENGINE_LOAD_A(m_count, depth)
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      ENGINE_MULTIPLY(tile_c, TILE_N, x_base + x_offset + (long)panel * row_count * TILE_N, m_count,
                      depth, 1)
      const int h0 = panel * TILE_N;
      const int n_count = h_count - h0 < TILE_N ? h_count - h0 : TILE_N;
      const long base = out_offset + h0 * out_h_stride + v_tile * out_v_stride;
      // The inner loop runs along the output's contiguous index.
#if OUT_LAYOUT == W_HV
#define OUT_OUTER n
#define OUT_OUTER_COUNT n_count
#define OUT_INNER m
#define OUT_INNER_COUNT m_count
#else
#define OUT_OUTER m
#define OUT_OUTER_COUNT m_count
#define OUT_INNER n
#define OUT_INNER_COUNT n_count
#endif
#if ENGINE_CPU
      for (int OUT_OUTER = 0; OUT_OUTER < OUT_OUTER_COUNT; ++OUT_OUTER) {
        for (int OUT_INNER = 0; OUT_INNER < OUT_INNER_COUNT; ++OUT_INNER) {
#else
      for (int e = (int)get_local_id(0); e < OUT_OUTER_COUNT * OUT_INNER_COUNT; e += SIMT_ITEMS) {
        const int OUT_OUTER = e / OUT_INNER_COUNT;
        const int OUT_INNER = e % OUT_INNER_COUNT;
        {
#endif
          const long at = base + n * out_h_stride + m * out_v_stride;
          const float value = tile_c[m * TILE_N + n];
          if (add) {
            STORE(OUT_TYPE, out, at, LOAD(OUT_TYPE, out, at) + value);
          } else {
            STORE(OUT_TYPE, out, at, value);
          }
        }
      }
    }
  }
}

// out[h][v] (+)= sums[v][h], rounded once. Work-item (h or v, whichever is contiguous; the other).
kernel void write_w(global const float* sums, long sums_offset, long sums_v_stride,
                    global ELEMENT(OUT_TYPE) * out, long out_offset, long out_h_stride,
                    long out_v_stride, long h_count, long v_count, int add) {
#if OUT_LAYOUT == W_HV
  const long v = get_global_id(0);
  const long h = get_global_id(1);
#else
  const long h = get_global_id(0);
  const long v = get_global_id(1);
#endif
  if (h >= h_count || v >= v_count) return;
  const long at = out_offset + h * out_h_stride + v * out_v_stride;
  const float value = sums[sums_offset + v * sums_v_stride + h];
  STORE(OUT_TYPE, out, at, add ? LOAD(OUT_TYPE, out, at) + value : value);
}
