// SPDX-License-Identifier: Apache-2.0
// Logits of a chunk of rows against a range of the vocabulary, reduced to statistics as they appear:
// an online log-sum-exp per row and slice. The tile is transposed (vocabulary down, tokens across),
// so that everything below runs lane by lane, without a reduction across lanes.
//
// STORE_LOGITS also keeps the logits, [panel][v][TILE_N], for gradients (value_and_grad).
#include "common/logit.cl"
#include "common/statistics.cl"
#include "linear_cross_entropy/operands.cl"

#define A_AT(m, k) W_AT(k, v_tile + (m))
#define A_ROWS_READABLE (int)(v_readable - v_tile)
#if W_LAYOUT == W_VH
#define A_CONTIGUOUS_K 1
#define A_VECTOR_K(m, k) W_VECTOR(k, v_tile + (m))
#elif W_LAYOUT == W_HV
#define A_CONTIGUOUS_M 1
#define A_VECTOR_M(m, k) W_VECTOR(k, v_tile + (m))
#endif
#include "engines/engine.cl"

// Work-groups: (group of slices, group of panels). Slices are taken round robin, so that scratch is
// needed per group and not per slice; results do not depend on who takes which.
// v counts from the first column of this launch; `v_base` is that column's index in the call.
kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void forward(
    W_ARGUMENTS, COLUMN_ARGUMENTS, global const float* x_base, long x_offset,
    global const int* labels, long labels_offset, global const int* info, long info_offset,
    long chunk_begin, int panels, int panels_per_group, int h_count, long v_base, long v_count,
    long v_readable, long v_block, int slices, global float* stats, long stats_offset,
    int first_slice, int ld, global float* logits, long logits_offset, float scale, float cap,
    int argmax_base, ENGINE_ARGUMENTS) {
  ENGINE_LOCALS
  ENGINE_PROLOGUE
  ENGINE_TILE
  const long counted = (long)info[info_offset + INFO_COUNT] - chunk_begin;
  const int used = counted <= 0 ? 0 : (int)((counted + TILE_N - 1) / TILE_N);
  const int last = used < panels ? used : panels;
  const int panel_begin = (int)get_group_id(1) * panels_per_group;
  const int panel_end = panel_begin + panels_per_group < last ? panel_begin + panels_per_group : last;
  if (panel_begin >= panel_end) return;

  for (int slice = (int)get_group_id(0); slice < slices; slice += (int)get_num_groups(0)) {
    const long v_begin = slice * v_block;
    const long v_end = v_begin + v_block < v_count ? v_begin + v_block : v_count;
    global float* slice_stats = stats + stats_offset + (long)(first_slice + slice) * STAT_FIELDS * ld;
    for (long v_tile = v_begin; v_tile < v_end; v_tile += TILE_M) {
      const int m_count = v_end - v_tile < TILE_M ? (int)(v_end - v_tile) : TILE_M;
      ENGINE_LOAD_A(m_count, h_count)
      for (int panel = panel_begin; panel < panel_end; ++panel) {
        ENGINE_MULTIPLY(tile_c, TILE_N, x_base + x_offset + (long)panel * h_count * TILE_N, m_count,
                        h_count, 1)
        FOR_LANE_GROUPS(column) {
          const int row = panel * TILE_N + column;
          const lane_i label = LANE_LOAD(labels + labels_offset + chunk_begin + row);
          C_SPACE float* tile = tile_c + column;
#if STORE_LOGITS
          global float* kept =
              logits + logits_offset + ((long)panel * v_count + v_tile) * TILE_N + column;
#endif
          global float* at = slice_stats + row;
          lane_stats s;
          if (v_tile == v_begin) {
            stats_clear(&s, argmax_base + (int)v_begin);
          } else {
            stats_load(&s, at, ld);
          }

          // First pass: logits, their maximum, the label's.
          lane_f maximum = s.max;
          for (int m = 0; m < m_count; ++m) {
            const int v = (int)(v_base + v_tile) + m;
            const lane_f z = LANE_LOAD(tile + m * TILE_N) + (lane_f)(BIAS_AT((long)v));
            const lane_f logit = lane_logit(z, scale, cap);
            LANE_STORE(logit, tile + m * TILE_N);
#if STORE_LOGITS
            LANE_STORE(logit, kept + (long)m * TILE_N);
#endif
            maximum = logit > maximum ? logit : maximum;
            s.label_logit = label == (lane_i)(v) ? logit : s.label_logit;
            stats_argmax(&s, logit, (lane_i)(argmax_base + (int)v_tile + m));
          }

          // Second pass: sums relative to the new maximum.
          stats_move(&s, maximum);
          const lane_f shift = stats_shift(maximum);
          lane_stats block;
          stats_clear(&block, 0);
          for (int m = 0; m < m_count; ++m) {
            const lane_f c = (lane_f)(CLASS_AT(v_base + v_tile + m));
            stats_add(&block, LANE_LOAD(tile + m * TILE_N) - shift, c);
          }
          stats_join(&s, &block);
          stats_store(&s, at, ld);
        }
      }
    }
  }
}
