// SPDX-License-Identifier: Apache-2.0
// grad_w[h][v] (+)= sum over the rows of a chunk of x[row][h] * dz[row][v], as tiles [v][h]: A is dz,
// whose rows of tokens lie in panels, B is x packed by columns. Written with the caller's type and
// strides when the chunk is all there is, else accumulated in f32.
#include "common/info.cl"
#include "linear_cross_entropy/kept.cl"
#include "linear_cross_entropy/operands.cl"

// Columns v .. v + rows of dz, `depth` tokens of the chunk.
typedef struct {
  int step;
  int rows, depth;
  long v;
} dz_tile;

// dz lies as [panel][dz_columns][TILE_N]: TILE_N tokens side by side, then the next panel.
#define A_INDEX(tile, m, k) \
  (((long)((k) / TILE_N) * dz_columns + tile.v + (m)) * TILE_N + (k) % TILE_N)
#define A_AT(tile, m, k) dz[dz_offset + A_INDEX(tile, m, k)]
#define A_CONTIGUOUS_K 1
#define A_VECTOR_K(tile, m, k) LANE_LOAD(dz + dz_offset + A_INDEX(tile, m, k))
#if OUT_LAYOUT == W_VH
#define OUT_ADDRESS(m) (out + base + (m)*out_v_stride)
#endif
#if FILTER
#define K_KEPT(k) KEPT((k) / TILE_N, now.v, now.v + now.rows)
#define K_KEPT_STEP TILE_N
#endif
#include "engines/engine.cl"

#define WRITE_ELEMENT(m, n)                                                              \
  {                                                                                      \
    const long at = base + (n)*out_h_stride + (m)*out_v_stride;                          \
    const float value = tile_c[(m)*TILE_N + (n)];                                        \
    STORE(OUT_TYPE, out, at, add ? LOAD(OUT_TYPE, out, at) + value : value);             \
  }
#define WRITE_VECTOR(value, to)                                                          \
  LANE_STORE_TYPE(OUT_TYPE, add ? LANE_LOAD_TYPE(OUT_TYPE, to) + (value) : (value), to)

#define TILE_EXTENTS                                                       \
  next.v = STEP_BEGIN(next.step, steps, v_count);                           \
  next.rows = (int)(STEP_BEGIN(next.step + 1, steps, v_count) - next.v);    \
  TILE_DEPTH

#if FILTER
// Up to the last panel of tokens that is kept, and 0 where none is.
#define TILE_DEPTH                                                          \
  next.depth = depth;                                                       \
  while (next.depth > 0) {                                                  \
    const int last = (next.depth - 1) / TILE_N;                             \
    if (KEPT(last, next.v, next.v + next.rows)) break;                      \
    next.depth = last * TILE_N;                                             \
  }
#else
#define TILE_DEPTH
#endif

// Nothing to add: zeros along the output's contiguous index, h of [begin, end) and all of the tile's v.
#if FILTER
#if OUT_LAYOUT == W_HV
#define CLEAR_TILE(begin, end)                                                          \
  for (int h = (begin); h < (end); ++h) {                                               \
    clear_row(out + out_offset + h * out_h_stride + now.v * out_v_stride, now.rows, out_v_stride); \
  }
#else
#define CLEAR_TILE(begin, end)                                                          \
  for (int m = 0; m < now.rows; ++m) {                                                  \
    clear_row(out + out_offset + (begin)*out_h_stride + (now.v + m) * out_v_stride,     \
              (end) - (begin), out_h_stride);                                           \
  }
#endif
static inline void clear_row(global ELEMENT(OUT_TYPE) * row, int count, long stride) {
  int i = 0;
#if ENGINE_CPU
#if OUT_LAYOUT != W_STRIDED
  for (; i + LANES <= count; i += LANES) LANE_STORE_TYPE(OUT_TYPE, (lane_f)(0.0f), row + i);
#endif
  for (; i < count; ++i) STORE(OUT_TYPE, row, i * stride, 0.0f);
#else
  for (i = (int)get_local_id(0); i < count; i += SIMT_ITEMS) STORE(OUT_TYPE, row, i * stride, 0.0f);
#endif
}
#endif

// Work-groups: (group of steps of at most TILE_M columns of the vocabulary, group of panels of h).
// `add`: the sum is added to what `out` holds. h is contiguous in `out` where OUT_LAYOUT says so.
kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void grad_w(
    global const float* dz, long dz_offset, long dz_columns, long v_count, int row_count,
    global const float* x_base, long x_offset, int h_count, int panels, int panels_per_group,
    global const int* info, long info_offset, long chunk_begin, global ELEMENT(OUT_TYPE) * out,
    long out_offset, long out_h_stride, long out_v_stride, int add, int steps,
    ENGINE_ARGUMENTS KEPT_ARGUMENTS) {
  ENGINE_LOCALS
  ENGINE_PROLOGUE
  ENGINE_TILE(1)
  const int panel_begin = (int)get_group_id(1) * panels_per_group;
  const int panel_end =
      panel_begin + panels_per_group < panels ? panel_begin + panels_per_group : panels;
  const long counted = (long)info[info_offset + INFO_COUNT] - chunk_begin;
  const int depth = counted <= 0 ? 0 : counted < row_count ? (int)counted : row_count;
  dz_tile now, next;
  next.step = (int)get_group_id(0);
  next.depth = depth;
  TILE_EXTENTS
  ENGINE_LOAD_ALL
  while (next.rows > 0) {
    ENGINE_TURN
    now = next;
    next.step += (int)get_num_groups(0);
    TILE_EXTENTS
    const int m_count = now.rows;
#if FILTER
    if (now.depth == 0) {
      ENGINE_LOAD_ALL  // which the products that are left out would have done
      if (!add) CLEAR_TILE(panel_begin * TILE_N, min(panel_end * TILE_N, h_count))
      continue;
    }
#endif
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      const int h0 = panel * TILE_N;
      const int n_count = h_count - h0 < TILE_N ? h_count - h0 : TILE_N;
      const long base = out_offset + h0 * out_h_stride + now.v * out_v_stride;
      ENGINE_MULTIPLY(tile_c, TILE_N, x_base + x_offset + (long)panel * row_count * TILE_N, m_count,
                      now.depth, 1, panel - panel_begin, panel_end - panel_begin)
#if ENGINE_CPU && OUT_LAYOUT != W_STRIDED
      // Vectors along the output's contiguous index: LANES x LANES blocks, turned over in registers
      // where that is the vocabulary. What is left at the edges goes element by element.
      const int m_whole = OUT_LAYOUT == W_HV ? m_count / LANES * LANES : m_count;
      const int n_whole = n_count / LANES * LANES;
      for (int n = 0; n < n_whole; n += LANES) {
#if OUT_LAYOUT == W_HV
        for (int m = 0; m < m_whole; m += LANES) {
          lane_f block[LANES];
#pragma unroll
          for (int i = 0; i < LANES; ++i) block[i] = LANE_LOAD(tile_c + (m + i) * TILE_N + n);
          lane_transpose(block);
#pragma unroll
          for (int i = 0; i < LANES; ++i) {
            WRITE_VECTOR(block[i], out + base + (n + i) * out_h_stride + m);
          }
        }
#else
        for (int m = 0; m < m_whole; ++m) {
          WRITE_VECTOR(LANE_LOAD(tile_c + m * TILE_N + n), out + base + m * out_v_stride + n);
        }
#endif
      }
      for (int m = 0; m < m_count; ++m) {
        for (int n = m < m_whole ? n_whole : 0; n < n_count; ++n) WRITE_ELEMENT(m, n)
      }
#elif ENGINE_CPU
      for (int m = 0; m < m_count; ++m) {
        for (int n = 0; n < n_count; ++n) WRITE_ELEMENT(m, n)
      }
#elif OUT_LAYOUT == W_HV
      // Neighbouring work-items write along the output's contiguous index.
      for (int e = (int)get_local_id(0); e < m_count * n_count; e += SIMT_ITEMS) {
        WRITE_ELEMENT(e % m_count, e / m_count)
      }
#else
      for (int e = (int)get_local_id(0); e < m_count * n_count; e += SIMT_ITEMS) {
        WRITE_ELEMENT(e / n_count, e % n_count)
      }
#endif
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
