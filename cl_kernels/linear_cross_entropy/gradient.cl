// SPDX-License-Identifier: Apache-2.0
// dz, the gradient of the products z, for a chunk of rows and a range of the vocabulary, kept as
// [panel][v][TILE_N] f32: recomputed from x and w, or from logits that forward stored.
#include "common/logit.cl"
#include "linear_cross_entropy/logits.cl"

// Work-groups: (group of slices, group of panels), as in forward.
kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) void gradient(
    W_ARGUMENTS, COLUMN_ARGUMENTS, global const float* x_base, long x_offset,
    global const int* labels, long labels_offset, global const int* info, long info_offset,
    long chunk_begin, int panels, int panels_per_group, int h_count, long v_base, long v_count,
    long v_readable, long v_block, int slices, global const float* coefficients,
    long coefficients_offset, int ld, global float* dz, long dz_offset, float scale, float cap,
    ENGINE_ARGUMENTS) {
  ENGINE_LOCALS
  ENGINE_PROLOGUE
  ENGINE_TILE(TILES_OF_GROUP)
  const int panel_begin = (int)get_group_id(1) * panels_per_group;
  const int panel_end =
      panel_begin + panels_per_group < panels ? panel_begin + panels_per_group : panels;
  const long counted = (long)info[info_offset + INFO_COUNT] - chunk_begin;
  const int full = counted <= 0 ? 0 : (int)((counted + TILE_N - 1) / TILE_N);
  const int used = full < panel_end ? full : panel_end;

  FIRST_TILE
  while (next.rows > 0) {
    NEXT_TILE
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      global float* to = dz + dz_offset + ((long)panel * v_count + now.v) * TILE_N;
      // Panels without a row that counts (their number may be known to the device only) are 0.
      if ((long)panel * TILE_N >= counted) {
        FOR_LANE_GROUPS(column) {
          for (int m = 0; m < now.rows; ++m) LANE_STORE((lane_f)(0.0f), to + m * TILE_N + column);
        }
        continue;
      }
      C_SPACE float* panel_c = PANEL_TILE(panel);
      MULTIPLY_PANEL(panel_c, panel, used)
      if (!TILE_COMPLETE) continue;
      FOR_LANE_GROUPS(column) {
        const int row = panel * TILE_N + column;
        const lane_i label = LANE_LOAD(labels + labels_offset + chunk_begin + row);
        lane_row r;
        load_lane_row(&r, coefficients + coefficients_offset, ld, row);
        C_SPACE float* tile = panel_c + column;
        for (int m = 0; m < now.rows; ++m) {
          const int v = (int)(v_base + now.v) + m;
          const lane_f z = LANE_LOAD(tile + m * TILE_N);
          const lane_f logit = lane_logit(z + (lane_f)(BIAS_AT((long)v)), scale, cap);
          const lane_f g =
              lane_dlogit(logit, label == (lane_i)(v), (lane_f)(CLASS_AT((long)v)), &r);
          LANE_STORE(lane_dz(g, logit, scale, cap), to + m * TILE_N + column);
        }
      }
    }
  }
}

// From stored logits, for columns v_base .. v_base + v_count; dz may take their place. Columns outside
// and tokens inside, as logits lie that wait in grad_w. Work-item (lanes of a panel, slice).
kernel void gradient_of_stored(COLUMN_ARGUMENTS, global const int* labels, long labels_offset,
                               global const int* info, long info_offset, long chunk_begin,
                               int panels, long v_base, long v_count, long v_block,
                               STORED_ARGUMENTS, global const float* coefficients,
                               long coefficients_offset, int ld, global float* dz, long dz_offset,
                               long dz_columns, float scale, float cap) {
  const long v_begin = (long)get_global_id(1) * v_block;
  const long v_end = v_begin + v_block < v_count ? v_begin + v_block : v_count;
  const int step = (int)get_global_size(0) * LANES;
  const long counted = (long)info[info_offset + INFO_COUNT] - chunk_begin;
  for (long v = v_begin; v < v_end; ++v) {
    for (int panel = 0; panel < panels; ++panel) {
      global const ushort* logits = STORED_AT((long)panel, v);
      global float* to = dz + dz_offset + ((long)panel * dz_columns + v) * TILE_N;
      for (int column = (int)get_global_id(0) * LANES; column < TILE_N; column += step) {
        const int row = panel * TILE_N + column;
        if ((long)panel * TILE_N >= counted) {
          LANE_STORE((lane_f)(0.0f), to + column);
          continue;
        }
        const lane_i label = LANE_LOAD(labels + labels_offset + chunk_begin + row);
        lane_row r;
        load_lane_row(&r, coefficients + coefficients_offset, ld, row);
        const lane_f logit = STORED_LOAD(logits, column);
        const lane_f g = lane_dlogit(logit, label == (lane_i)((int)(v_base + v)),
                                     (lane_f)(CLASS_AT(v_base + v)), &r);
        LANE_STORE(lane_dz(g, logit, scale, cap), to + column);
      }
    }
  }
}

// sums[v] (+)= the sum of dz over the rows of a chunk, panel by panel and lane by lane in order.
// Work-item (v).
kernel void sum_bias(global const float* dz, long dz_offset, long dz_columns, int panels,
                     long v_count, global float* sums, long sums_offset, int first) {
  const long v = get_global_id(0);
  if (v >= v_count) return;
  float total = 0.0f;
  for (int panel = 0; panel < panels; ++panel) {
    global const float* from = dz + dz_offset + ((long)panel * dz_columns + v) * TILE_N;
    float part = 0.0f;
    for (int n = 0; n < TILE_N; ++n) part += from[n];
    total += part;
  }
  sums[sums_offset + v] = first ? total : sums[sums_offset + v] + total;
}
