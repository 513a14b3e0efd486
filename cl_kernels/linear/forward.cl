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

// 1: a tile that is in registers, some of whose rows may be beyond the last, becomes logits before
// anything is made of them, so that no element but those of the last tile is asked for its row.
#define LOGITS_FIRST (!LOGITS_ROWS_COUNT && !LONG_EPILOGUE)
// 1: a row has its target in few tiles, which are gone over for it. Where a work-item holds all
// rows of a column the first pass looks for it: PoCL's loops over work-items then stay vectors.
#define TARGET_BEHIND_A_TEST (!LOGITS_ROWS_COUNT)

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
#if TARGET_BEHIND_A_TEST  // find_target does
#elif TARGETS == TARGETS_LABELS
  *label_logit = target->label == (lane_i)(v) ? logit : *label_logit;
#elif TARGETS == TARGETS_PAIRS
  if (counts && PAIRS_NEAR(target, v)) pairs_keep(target, v, logit);
#endif
}
// After the pass.
ALWAYS_INLINE void find_target(const logits_state* p, const engine_tile* tile, int j,
                               lane_targets* target, int v_first, int rows, lane_f* label_logit) {
#if !TARGET_BEHIND_A_TEST  // see_target did
#elif TARGETS == TARGETS_LABELS
  const int at = target->label - v_first;
  if (at < 0 || at >= rows) return;
  const int ahead = at - logits_row(p, 0);
  LOGITS_FOR_ROWS(i, rows) {
    *label_logit = logits_ahead(i) == ahead ? logits_at(tile, i, j) : *label_logit;
  }
#elif TARGETS == TARGETS_PAIRS
  if (!PAIRS_NEAR(target, v_first + rows - 1)) return;
  LOGITS_FOR_ROWS(i, rows) {
    const int row = logits_row(p, i);
    const int v = v_first + row;
    if (row < rows && PAIRS_NEAR(target, v)) pairs_keep(target, v, logits_at(tile, i, j));
  }
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
#if LOGITS_FIRST
      LOGITS_FOR_ELEMENTS(i, now.rows, j) {
        logits_put(&tile, i, j,
                   lane_logit(logits_at(&tile, i, j), a.size.logit.scale, a.size.logit.cap));
      }
      // Few tiles have rows beyond the last.
      if (now.rows < TILE_M) {
        LOGITS_FOR_ELEMENTS(i, now.rows, j) {
          if (logits_row(&p, i) >= now.rows) logits_put(&tile, i, j, -INFINITY);
        }
      }
#endif
      LOGITS_FOR_COLUMNS(j) {
        // The work-item's first row, and those from there to the last that counts.
        const int first = logits_row(&p, 0), left = now.rows - first;
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
          const int counts = logits_ahead(i) < left;
          const int v = v_first + first + logits_ahead(i);
#if LOGITS_FIRST
          const lane_f logit = logits_at(&tile, i, j);
#else
          const lane_f z =
              BIASED(logits_at(&tile, i, j), v_first + (long)logits_row_within(&p, i, now.rows));
          const lane_f logit =
              counts ? lane_logit(z, a.size.logit.scale, a.size.logit.cap) : (lane_f)(-INFINITY);
          logits_put(&tile, i, j, logit);
#endif
#if STATISTICS
          maximum = lane_larger(logit, maximum);
          see_target(&target, v, counts, logit, &label_logit);
          stats_argmax(&s, logit, (lane_i)(v));
#endif
        }

#if STATISTICS
        find_target(&p, &tile, j, &target, v_first, now.rows, &label_logit);
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
          add_difference(&block, logits_at(&tile, i, j) - shift, &target, v, logits_ahead(i) < left,
                         (lane_f)(CLASS_AT(v)));
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
      const int first = logits_row(&p, 0);
      LOGITS_FOR_ELEMENTS(i, now.rows, j) {
        if (first + logits_ahead(i) >= now.rows) continue;
        KEPT_STORE(logits_at(&tile, i, j), KEPT_AHEAD((long)panel, now.m + first, logits_ahead(i)),
                   logits_column(&p, j));
      }
#endif
    }
  }
}
