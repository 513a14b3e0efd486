// SPDX-License-Identifier: Apache-2.0
// Logits of a chunk of rows against a range of the vocabulary, reduced to statistics as they appear:
// an online log-sum-exp per row and slice. The tile is transposed (vocabulary down, tokens across),
// so that everything below runs lane by lane, without a reduction across lanes.
//
// STORE_LOGITS also keeps the logits for gradients, as STORED_ARGUMENTS says; without STATISTICS they
// are all that is made (backward, which has the statistics).
#include "common/logit.cl"
#include "common/statistics.cl"
#include "linear_cross_entropy/logits.cl"

// Work-groups: (group of slices, group of panels).
// v counts from the first column of this launch; `v_base` is that column's index in the call.
kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void forward(
    W_ARGUMENTS, COLUMN_ARGUMENTS, global const float* x_base, long x_offset,
    global const int* labels, long labels_offset, global const int* info, long info_offset,
    long chunk_begin, int panels, int panels_per_group, int h_count, long v_base, long v_count,
    long v_readable, long v_block, int slices, global float* stats, long stats_offset,
    int first_slice, int ld, STORED_ARGUMENTS, float scale, float cap,
    int argmax_base, ENGINE_ARGUMENTS) {
  ENGINE_LOCALS
  ENGINE_PROLOGUE
  ENGINE_TILE(TILES_OF_GROUP)
  const long counted = (long)info[info_offset + INFO_COUNT] - chunk_begin;
  const int used = counted <= 0 ? 0 : (int)((counted + TILE_N - 1) / TILE_N);
  const int last = used < panels ? used : panels;
  const int panel_begin = (int)get_group_id(1) * panels_per_group;
  const int panel_end = panel_begin + panels_per_group < last ? panel_begin + panels_per_group : last;
  if (panel_begin >= panel_end) return;

  FIRST_TILE
  while (next.rows > 0) {
    NEXT_TILE
#if STATISTICS
    const long v_begin = now.slice * v_block;
    global float* slice_stats =
        stats + stats_offset + (long)(first_slice + now.slice) * STAT_FIELDS * ld;
#endif
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      C_SPACE float* panel_c = PANEL_TILE(panel);
      MULTIPLY_PANEL(panel_c, panel, panel_end)
      if (!TILE_COMPLETE) continue;
      FOR_LANE_GROUPS(column) {
        C_SPACE float* tile = panel_c + column;
#if STATISTICS
        const int row = panel * TILE_N + column;
        const lane_i label = LANE_LOAD(labels + labels_offset + chunk_begin + row);
        global float* at = slice_stats + row;
        lane_stats s;
        if (now.v == v_begin) {
          stats_clear(&s, argmax_base + (int)v_begin);
        } else {
          stats_load(&s, at, ld);
        }

        // First pass: logits, their maximum, the label's.
        lane_f maximum = s.max;
#endif
        for (int m = 0; m < now.rows; ++m) {
          const int v = (int)(v_base + now.v) + m;
          const lane_f z = LANE_LOAD(tile + m * TILE_N) + (lane_f)(BIAS_AT((long)v));
          const lane_f logit = lane_logit(z, scale, cap);
          LANE_STORE(logit, tile + m * TILE_N);
#if STATISTICS
          maximum = logit > maximum ? logit : maximum;
          s.label_logit = label == (lane_i)(v) ? logit : s.label_logit;
          stats_argmax(&s, logit, (lane_i)(argmax_base + (int)now.v + m));
#endif
        }

#if STATISTICS
        // Second pass: sums relative to the new maximum.
        stats_move(&s, maximum);
        const lane_f shift = stats_shift(maximum);
        lane_stats block;
        stats_clear(&block, 0);
        for (int m = 0; m < now.rows; ++m) {
          const lane_f c = (lane_f)(CLASS_AT(v_base + now.v + m));
          stats_add(&block, LANE_LOAD(tile + m * TILE_N) - shift, c);
        }
        stats_join(&s, &block);
        stats_store(&s, at, ld);
#endif
      }
#if STORE_LOGITS
      // After both passes, so that whole lines are written at once.
      for (int m = 0; m < now.rows; ++m) {
        global ushort* kept = STORED_AT((long)panel, now.v + m);
        FOR_LANE_GROUPS(column) {
          STORED_STORE(LANE_LOAD(panel_c + m * TILE_N + column), kept, column);
        }
      }
#endif
    }
  }
}
