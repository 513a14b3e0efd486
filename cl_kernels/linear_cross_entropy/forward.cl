// SPDX-License-Identifier: Apache-2.0
// Logits of a chunk of rows against a range of the vocabulary, reduced to statistics as they appear:
// an online log-sum-exp per row and slice. The tile is transposed (vocabulary down, tokens across),
// so that everything below runs lane by lane, without a reduction across lanes.
//
// STORE_LOGITS also keeps the logits, [panel][v][TILE_N], for gradients (value_and_grad).
#include "common/logit.cl"
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

// The running statistics of one lane group in one slice.
typedef struct {
  lane_f max, sum, label_logit, class_logit, argmax_value, exp_logit;
  lane_i argmax;
} lane_stats;

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
#if WANT_CLASS
    float class_sum = 0.0f;
#endif
    for (long v_tile = v_begin; v_tile < v_end; v_tile += TILE_M) {
      const int m_count = v_end - v_tile < TILE_M ? (int)(v_end - v_tile) : TILE_M;
      ENGINE_LOAD_A(m_count, h_count)
#if WANT_CLASS
      // Classes of the tiles before this one, whose logits move with the maximum; then with this.
      const float class_before = class_sum;
      for (int m = 0; m < m_count; ++m) class_sum += CLASS_AT(v_base + v_tile + m);
#endif
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
          lane_stats s;
#define STAT(field) (slice_stats + (field)*ld + row)
          if (v_tile == v_begin) {
            s.max = s.label_logit = s.argmax_value = (lane_f)(-INFINITY);
            s.sum = s.class_logit = s.exp_logit = (lane_f)(0.0f);
            // The first column, unless another is larger: also where every logit is -Inf.
            s.argmax = (lane_i)(argmax_base + (int)v_begin);
          } else {
            s.max = LANE_LOAD(STAT(STAT_MAX));
            s.sum = LANE_LOAD(STAT(STAT_SUM));
            s.label_logit = LANE_LOAD(STAT(STAT_LABEL_LOGIT));
#if WANT_CLASS
            s.class_logit = LANE_LOAD(STAT(STAT_CLASS_LOGIT));
#endif
#if WANT_ARGMAX
            s.argmax_value = LANE_LOAD(STAT(STAT_ARGMAX_VALUE));
            s.argmax = AS_LANE_I(LANE_LOAD(STAT(STAT_ARGMAX)));
#endif
#if WANT_EXP
            s.exp_logit = LANE_LOAD(STAT(STAT_EXP_LOGIT));
#endif
          }

          // First pass: logits, their maximum, the label's.
          lane_f m_new = s.max;
          for (int m = 0; m < m_count; ++m) {
            const int v = (int)(v_base + v_tile) + m;
            lane_f logit = LANE_LOAD(tile + m * TILE_N);
            logit = lane_logit(logit + (lane_f)(BIAS_AT((long)v)), scale, cap);
            LANE_STORE(logit, tile + m * TILE_N);
#if STORE_LOGITS
            LANE_STORE(logit, kept + (long)m * TILE_N);
#endif
            m_new = logit > m_new ? logit : m_new;
            s.label_logit = label == (lane_i)(v) ? logit : s.label_logit;
#if WANT_ARGMAX
            const lane_i larger = logit > s.argmax_value;
            s.argmax_value = larger ? logit : s.argmax_value;
            s.argmax = larger ? (lane_i)(argmax_base + (int)v_tile + m) : s.argmax;
#endif
          }

          // Second pass: sums relative to the new maximum (0 while there is none but -Inf).
          const lane_f shift = m_new == (lane_f)(-INFINITY) ? (lane_f)(0.0f) : m_new;
          lane_f sum = (lane_f)(0.0f);
#if WANT_CLASS
          lane_f class_logit = (lane_f)(0.0f);
#endif
#if WANT_EXP
          lane_f exp_logit = (lane_f)(0.0f);
#endif
          for (int m = 0; m < m_count; ++m) {
            const lane_f d = LANE_LOAD(tile + m * TILE_N) - shift;
            const lane_f e = lane_exp(d);
            sum += e;
#if WANT_CLASS
            // A class of weight 0 adds nothing, even where its logit is -Inf.
            const float c = CLASS_AT(v_base + v_tile + m);
            if (c != 0.0f) class_logit += (lane_f)(c)*d;
#endif
#if WANT_EXP
            exp_logit += e == (lane_f)(0.0f) ? (lane_f)(0.0f) : e * d;
#endif
          }

          // What was summed before becomes relative to the new maximum; where it stands still the
          // factor is exactly 1.
          const lane_f factor =
              s.max == m_new ? (lane_f)(1.0f) : lane_exp(s.max - m_new);
#if WANT_EXP || WANT_CLASS
          const lane_f old_shift = s.max == (lane_f)(-INFINITY) ? (lane_f)(0.0f) : s.max;
          const lane_f moved = s.max == m_new ? (lane_f)(0.0f) : old_shift - shift;
#endif
#if WANT_EXP
          const lane_f before = factor * (s.exp_logit + moved * s.sum);
          exp_logit += factor == (lane_f)(0.0f) ? (lane_f)(0.0f) : before;
          LANE_STORE(exp_logit, STAT(STAT_EXP_LOGIT));
#endif
#if WANT_CLASS
          class_logit += class_before != 0.0f ? s.class_logit + (lane_f)(class_before)*moved
                                              : s.class_logit;
          LANE_STORE(class_logit, STAT(STAT_CLASS_LOGIT));
          LANE_STORE((lane_f)(class_sum), STAT(STAT_CLASS_SUM));
#endif
          LANE_STORE(s.sum * factor + sum, STAT(STAT_SUM));
          LANE_STORE(m_new, STAT(STAT_MAX));
          LANE_STORE(s.label_logit, STAT(STAT_LABEL_LOGIT));
#if WANT_ARGMAX
          LANE_STORE(s.argmax_value, STAT(STAT_ARGMAX_VALUE));
          LANE_STORE(AS_LANE_F(s.argmax), STAT(STAT_ARGMAX));
#endif
#undef STAT
        }
      }
    }
  }
}
