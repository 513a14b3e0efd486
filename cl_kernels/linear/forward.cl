// SPDX-License-Identifier: Apache-2.0
// Logits of a chunk of rows against a range of the vocabulary, reduced to statistics as they
// appear: an online log-sum-exp per row and slice. The tile is transposed (vocabulary down, tokens
// across), so that everything below runs column by column.
//
// KEEP_LOGITS also keeps the logits for gradients, as operands.cl says; without STATISTICS they are
// all that is made (backward, which has the statistics).
#include "common/logit.cl"
#include "common/statistics.cl"
#include "linear/epilogue.cl"
#include "linear/logits.cl"

// What a block of the column's rows adds up to, over all who hold some of them.
#if WANT_CLASS
#define CLASS_TOTALS                                 \
  block.class_logit = COLUMN_SUM(block.class_logit); \
  block.class_sum = COLUMN_SUM(block.class_sum);
#else
#define CLASS_TOTALS
#endif
#if WANT_EXP
#define EXP_TOTAL block.exp_logit = COLUMN_SUM(block.exp_logit);
#else
#define EXP_TOTAL
#endif

// The first pass comes to a row's target, and has seen the rows of a tile.
#if TARGETS == TARGETS_LABELS
#define SEE_TARGET(v, logit) label_logit = target.label == (lane_i)(v) ? logit : label_logit;
#define LABEL_SEEN                                                                         \
  const lane_i label_here =                                                                \
      (target.label >= (lane_i)(v_first)) & (target.label < (lane_i)(v_first + now.rows)); \
  label_logit = COLUMN_SUM(label_logit);                                                   \
  s.label_logit = label_here ? label_logit : s.label_logit;
#else
#define LABEL_SEEN
#if TARGETS == TARGETS_PAIRS
#define SEE_TARGET(v, logit) \
  if (PAIRS_NEAR(&target, v)) pairs_keep(&target, v, logit);
#else
#define SEE_TARGET(v, logit)
#endif
#endif

// The second pass adds the logit of column v, whose class weight is c.
static inline void add_difference(lane_stats* s, lane_f difference, lane_targets* target, long v,
                                  lane_f c) {
#if TARGETS == TARGETS_DENSE
  const lane_f probability = dense_at(target, v);
  stats_add_target(s, difference, probability, c);
#if !PARTIAL
  c = dense_target(target->sizes, probability, c);
#endif
#endif
  stats_add(s, difference, c);
}
#if TARGETS == TARGETS_DENSE
#if PARTIAL
#define WEIGHTED_TOTALS                                    \
  block.weighted_logit = COLUMN_SUM(block.weighted_logit); \
  block.weighted_sum = COLUMN_SUM(block.weighted_sum);
#else
#define WEIGHTED_TOTALS
#endif
#define TARGET_TOTALS                                \
  block.label_logit = COLUMN_SUM(block.label_logit); \
  block.target_sum = COLUMN_SUM(block.target_sum);   \
  WEIGHTED_TOTALS
#else
#define TARGET_TOTALS
#endif

// Work-groups: (group of slices, group of panels).
kernel ENGINE_KERNEL void forward(global const ELEMENT(W_TYPE) * w,
                                  global const ELEMENT(BIAS_TYPE) * bias,
                                  global const ELEMENT(CLASS_TYPE) * class_weight,
                                  global const operand_word* x, global const int* labels,
                                  global const int* info, global float* stats, global uchar* kept,
                                  global float* values, global const ELEMENT(TARGET_TYPE) * targets,
                                  global float* scratch, forward_arguments a, engine_call e) {
  ENGINE_LOCALS
  ENGINE_SETUP(scratch + a.at.scratch)
  const int panel_begin = PANEL_BEGIN;
  const int panel_end = PANEL_END(panels_used(COUNTED_TOKENS, a.size.panels));
  if (panel_begin >= panel_end) return;

  LOGITS_WALK
  while (next.rows > 0) {
    NEXT_TILE
    const int v_first = (int)(a.size.v_base + now.m);
#if STATISTICS
    const long v_begin = now.part * a.size.v_block;
    global float* slice_stats =
        stats + a.at.stats + (long)(a.size.first_slice + now.part) * STAT_FIELDS * a.size.ld;
#endif
    for (int panel = panel_begin; panel < panel_end; ++panel) {
      c_tile tile = ENGINE_TILE(panel - panel_begin);
      ENGINE_MULTIPLY(tile, x_rows, panel, panel - panel_begin, panel_end - panel_begin)
      if (!TILE_COMPLETE) continue;
      if (EPILOGUE == 0) continue;
      FOR_COLUMNS(column) {
#if STATISTICS
        const int row = panel * TILE_N + column;
        lane_targets target;
        OPEN_TARGETS(&target, row, v_first)
        global float* at = slice_stats + row;
        lane_stats s;
        if (now.m == v_begin) {
          stats_clear(&s, (int)(a.size.v_base + v_begin));
        } else {
          stats_load(&s, at, a.size.ld);
        }

        // First pass: logits, their maximum, the label's.
        lane_f maximum = s.max;
        lane_f label_logit = (lane_f)(0.0f);
#endif
        FOR_ROWS(m, now.rows) {
          const int v = v_first + m;
          const lane_f z = TILE_AT(tile, m, column) + (lane_f)(BIAS_AT((long)v));
          const lane_f logit = lane_logit(z, a.size.logit.scale, a.size.logit.cap);
          TILE_SET(tile, m, column, logit);
#if STATISTICS
          maximum = logit > maximum ? logit : maximum;
          SEE_TARGET(v, logit)
          stats_argmax(&s, logit, (lane_i)(v));
#endif
        }

#if STATISTICS
        LABEL_SEEN
#if WANT_ARGMAX
        const lane_f best = COLUMN_MAX(s.argmax_value);
        s.argmax = COLUMN_MIN_INDEX(s.argmax_value == best ? s.argmax : (lane_i)(INT_MAX));
        s.argmax_value = best;
#endif
        // Second pass: sums relative to the new maximum.
        stats_move(&s, COLUMN_MAX(maximum));
        const lane_f shift = stats_shift(s.max);
        lane_stats block;
        stats_clear(&block, 0);
#if EPILOGUE > 1
        FOR_ROWS(m, now.rows) {
          const long v = v_first + m;
          add_difference(&block, TILE_AT(tile, m, column) - shift, &target, v,
                         (lane_f)(CLASS_AT(v)));
        }
#endif
        block.sum = COLUMN_SUM(block.sum);
        CLASS_TOTALS
        EXP_TOTAL
        TARGET_TOTALS
        stats_join(&s, &block);
        if (COLUMN_OWNER) stats_store(&s, at, a.size.ld);
        COLUMN_SYNC
#endif
      }
#if KEEP_LOGITS
      // After both passes, so that whole lines are written at once.
      FOR_ELEMENTS(m, now.rows, column) {
        KEPT_STORE(TILE_AT(tile, m, column), KEPT_AT((long)panel, now.m + m), column);
      }
#endif
    }
  }
}
