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

// Adds up a block's sums over all who hold rows of the column.
ALWAYS_INLINE void total_block(logits_state* p, lane_stats* block) {
  block->sum = logits_sum(p, block->sum);
#if WANT_CLASS
  block->class_logit = logits_sum(p, block->class_logit);
  block->class_sum = logits_sum(p, block->class_sum);
#endif
#if WANT_EXP
  block->exp_logit = logits_sum(p, block->exp_logit);
#endif
#if TARGETS == TARGETS_DENSE
  block->label_logit = logits_sum(p, block->label_logit);
  block->target_sum = logits_sum(p, block->target_sum);
#if PARTIAL
  block->weighted_logit = logits_sum(p, block->weighted_logit);
  block->weighted_sum = logits_sum(p, block->weighted_sum);
#endif
#endif
}

// The first pass comes to the logit of column v, which may be a row's target; take_label leaves out
// a label that does not count.
ALWAYS_INLINE void see_target(lane_targets* target, int v, int counts, lane_f logit,
                              lane_f* label_logit) {
#if TARGETS == TARGETS_LABELS
  *label_logit = target->label == (lane_i)(v) ? logit : *label_logit;
#elif TARGETS == TARGETS_PAIRS
  if (counts && PAIRS_NEAR(target, v)) pairs_keep(target, v, logit);
#endif
}
// It has seen `rows` columns from v_first on.
ALWAYS_INLINE void take_label(logits_state* p, lane_stats* s, const lane_targets* target,
                              int v_first, int rows, lane_f label_logit) {
#if TARGETS == TARGETS_LABELS
  const lane_i is_here =
      (target->label >= (lane_i)(v_first)) & (target->label < (lane_i)(v_first + rows));
  label_logit = logits_sum(p, label_logit);
  s->label_logit = is_here ? label_logit : s->label_logit;
#endif
}

// The second pass adds the logit of column v, whose class weight is c. One that does not count is
// -Inf, and neither its class nor its probability is there.
static inline void add_difference(lane_stats* s, lane_f difference, lane_targets* target, long v,
                                  int counts, lane_f c) {
  c = counts ? c : (lane_f)(0.0f);
#if TARGETS == TARGETS_DENSE
  const lane_f probability = counts ? dense_at(target, v) : (lane_f)(0.0f);
  stats_add_target(s, difference, probability, c);
#if !PARTIAL
  c = dense_target(target->sizes, probability, c);
#endif
#endif
  stats_add(s, difference, c);
}

// Work-groups: (group of slices, group of panels).
kernel LOGITS_KERNEL void forward(global const ELEMENT(W_TYPE) * w,
                                  global const ELEMENT(BIAS_TYPE) * bias,
                                  global const ELEMENT(CLASS_TYPE) * class_weight,
                                  global const operand_word* x, global const int* labels,
                                  global const int* info, global float* stats, global uchar* kept,
                                  global float* values, global const ELEMENT(TARGET_TYPE) * targets,
                                  global float* scratch, forward_arguments a, engine_call e) {
  LOGITS_LOCALS(memory);
  logits_state p;
  open_logits(&p, &memory, scratch + a.at.scratch, &e, w + a.at.w, &a.size.w, x + a.at.x,
              a.size.h_count, a.size.v_count, a.size.v_block,
              panels_used(COUNTED_TOKENS, a.size.panels));
  if (p.panel_begin >= p.panel_end) return;

  while (logits_next(&p)) {
    const a_tile now = p.now;
    const int v_first = (int)(a.size.v_base + now.m);
#if STATISTICS
    const long v_begin = now.part * a.size.v_block;
    global float* slice_stats =
        stats + a.at.stats + (long)(a.size.first_slice + now.part) * STAT_FIELDS * a.size.ld;
#endif
    for (int panel = p.panel_begin; panel < p.panel_end; ++panel) {
      engine_tile tile;
      logits_multiply(&p, &tile, panel);
      if (!LOGITS_WHOLE_K && !logits_is_complete(&p)) continue;
      if (EPILOGUE == 0) continue;
      LOGITS_FOR_COLUMNS(j) {
#if STATISTICS
        const int row = panel * TILE_N + logits_column(&p, j);
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
        LOGITS_FOR_ROWS(i, now.rows) {
          const int counts = logits_row(&p, i) < now.rows;
          const int v = v_first + logits_row(&p, i);
          const long v_read = v_first + logits_row_within(&p, i, now.rows);
          const lane_f z = logits_at(&tile, i, j) + (lane_f)(BIAS_AT(v_read));
          const lane_f logit =
              counts ? lane_logit(z, a.size.logit.scale, a.size.logit.cap) : (lane_f)(-INFINITY);
          logits_put(&tile, i, j, logit);
#if STATISTICS
          maximum = logit > maximum ? logit : maximum;
          see_target(&target, v, counts, logit, &label_logit);
          stats_argmax(&s, logit, (lane_i)(v));
#endif
        }

#if STATISTICS
        take_label(&p, &s, &target, v_first, now.rows, label_logit);
#if WANT_ARGMAX
        const lane_f best = logits_max(&p, s.argmax_value);
        s.argmax = logits_first(&p, s.argmax_value == best ? s.argmax : (lane_i)(INT_MAX));
        s.argmax_value = best;
#endif
        // Second pass: sums relative to the new maximum.
        stats_move(&s, logits_max(&p, maximum));
        const lane_f shift = stats_shift(s.max);
        lane_stats block;
        stats_clear(&block, 0);
#if EPILOGUE > 1
        LOGITS_FOR_ROWS(i, now.rows) {
          const long v = v_first + logits_row_within(&p, i, now.rows);
          add_difference(&block, logits_at(&tile, i, j) - shift, &target, v,
                         logits_row(&p, i) < now.rows, (lane_f)(CLASS_AT(v)));
        }
#endif
        total_block(&p, &block);
        stats_join(&s, &block);
        if (logits_owns(&p)) stats_store(&s, at, a.size.ld);
#endif
      }
#if STATISTICS
      logits_sync(&p);
#endif
#if KEEP_LOGITS
      // After both passes, so that whole lines are written at once.
      LOGITS_FOR_ELEMENTS(i, now.rows, j) {
        if (logits_row(&p, i) >= now.rows) continue;
        KEPT_STORE(logits_at(&tile, i, j), KEPT_AT((long)panel, now.m + logits_row(&p, i)),
                   logits_column(&p, j));
      }
#endif
    }
  }
}
