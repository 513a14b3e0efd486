// SPDX-License-Identifier: Apache-2.0
// The targets of LANES rows side by side, for kernels that visit their logits column by column, in
// ascending order: a label; pairs, of which a visit finds those at its column; or a probability for
// every word, whose target stands in the place of a class weight (TARGETS of common/info.cl).
#ifndef TESSERA_TARGETS_CL
#define TESSERA_TARGETS_CL

#include "common/logit.cl"
#include "common/rows.cl"
#include "common/targets.h"

#ifndef TARGET_TYPE
#define TARGET_TYPE TYPE_F32
#endif

#if LANES == 1
#define LANE_ANY(v) (v)
#else
#define LANE_ANY(v) any(v)
#endif

// Blocks of LANES columns of a row's probabilities that are asked for before they are read: every
// row is in another page, and no processor looks ahead by itself there.
#define DENSE_AHEAD 4

typedef struct {
#if TARGETS == TARGETS_LABELS
  lane_i label;
#elif TARGETS == TARGETS_PAIRS
  // Of each row the first pair that no visit has passed; after the last its column is INT_MAX.
  lane_i next;                // column
  lane_i pair;                // number
  global const int* columns;  // of the first pair, at the first of the rows
  global float* values;       // arrays of pairs from there on
  const target_sizes* sizes;
#else
  global const ELEMENT(TARGET_TYPE) * targets;
  long start[LANES];  // of each row; -1: it pads a panel
  const target_sizes* sizes;
#if LANES > 1
  long begin;           // columns begin to begin + LANES - 1 are in `block`
  lane_f block[LANES];  // a column's probabilities each
#endif
#endif
} lane_targets;

// The rows from the i-th of the `counted` that count on, to be visited from column v on. `labels`
// is the list of theirs, `values` and `targets` are the call's.
static inline void targets_open(lane_targets* t, global const int* labels, global float* values,
                                global const ELEMENT(TARGET_TYPE) * targets, long i, long counted,
                                int v, const target_sizes* sizes) {
#if TARGETS == TARGETS_LABELS
  t->label = LANE_LOAD(labels + i);
#elif TARGETS == TARGETS_PAIRS
  t->columns = labels + sizes->columns + i;
  t->values = values + i;
  t->sizes = sizes;
  // Most of a long list in steps: a tile has few of a row's pairs.
  const int step = 16;
  int pair = 0;
  while (pair + step <= sizes->count &&
         !LANE_ANY(LANE_LOAD(t->columns + (pair + step - 1) * sizes->ld) >= (lane_i)(v))) {
    pair += step;
  }
  t->next = (lane_i)(INT_MIN);
  t->pair = (lane_i)(pair);
  for (; LANE_ANY(t->next < (lane_i)(v)); ++pair) {
    const lane_i column =
        pair < sizes->count ? LANE_LOAD(t->columns + pair * sizes->ld) : (lane_i)(INT_MAX);
    const lane_i before = t->next < (lane_i)(v);
    t->next = before ? column : t->next;
    t->pair = before ? (lane_i)(pair) : t->pair;
  }
#else
  t->targets = targets;
  t->sizes = sizes;
#if LANES > 1
  t->begin = v - LANES;
#endif
  for (int n = 0; n < LANES; ++n) {
    t->start[n] = i + n < counted ? row_offset(&sizes->geometry, labels[sizes->rows + i + n]) : -1;
#if LANES > 1
    for (int block = 0; block < DENSE_AHEAD; ++block) {
      PREFETCH(targets + t->start[n] + (v + block * LANES) * sizes->v_stride);
    }
#endif
  }
#endif
}

#if TARGETS == TARGETS_PAIRS
// Whether a row has a pair at column v, or one before it that no visit has passed, because a
// work-item does not see every column.
#define PAIRS_NEAR(t, v) LANE_ANY((t)->next <= (lane_i)(v))

// `found(n, at)` for each pair at column v, of row n, which is the `at`-th element of an array of
// pairs; all up to v are passed.
#define FOR_PAIRS_AT(t, v, found)                                                         \
  {                                                                                       \
    const long ld = (t)->sizes->ld;                                                       \
    int next[LANES], pair[LANES];                                                         \
    LANE_STORE((t)->next, next);                                                          \
    LANE_STORE((t)->pair, pair);                                                          \
    for (int n = 0; n < LANES; ++n) {                                                     \
      while (next[n] <= (v)) {                                                            \
        if (next[n] == (v)) found(n, pair[n] * ld + n);                                   \
        ++pair[n];                                                                        \
        next[n] = pair[n] < (t)->sizes->count ? (t)->columns[pair[n] * ld + n] : INT_MAX; \
      }                                                                                   \
    }                                                                                     \
    (t)->next = LANE_LOAD(next);                                                          \
    (t)->pair = LANE_LOAD(pair);                                                          \
  }

// Keeps the logits of the pairs at column v.
static inline void pairs_keep(lane_targets* t, int v, lane_f logit) {
  float logits[LANES];
  LANE_STORE(logit, logits);
#define KEEP_PAIR(n, at) t->values[t->sizes->logits + (at)] = logits[n]
  FOR_PAIRS_AT(t, v, KEEP_PAIR)
#undef KEEP_PAIR
}

// The sum of the factors of a row's pairs at column v; returns which rows have one.
static inline lane_i pairs_sum(lane_targets* t, int v, lane_f* sum) {
  float sums[LANES];
  int has[LANES];
  for (int n = 0; n < LANES; ++n) sums[n] = has[n] = 0;
#define ADD_PAIR(n, at)                             \
  {                                                 \
    sums[n] += t->values[t->sizes->factors + (at)]; \
    has[n] = -1;                                    \
  }
  FOR_PAIRS_AT(t, v, ADD_PAIR)
#undef ADD_PAIR
  *sum = LANE_LOAD(sums);
  return LANE_LOAD(has);
}
#endif

#if TARGETS == TARGETS_DENSE
#if LANES > 1
// The block from column v on: what rows have side by side, turned over. Column by column, rows that
// lie a power of two apart would drive each other's lines out of the cache before they are used up.
static inline void dense_fill(lane_targets* t, long v) {
  const long stride = t->sizes->v_stride;
  const long count = t->sizes->v - v;
  t->begin = v;
  for (int n = 0; n < LANES; ++n) {
    global const ELEMENT(TARGET_TYPE)* row = t->targets + t->start[n] + v * stride;
    if (t->start[n] < 0) {
      t->block[n] = (lane_f)(0.0f);
    } else if (stride == 1 && count >= LANES) {
      t->block[n] = LANE_LOAD_TYPE(TARGET_TYPE, row);
      PREFETCH(row + DENSE_AHEAD * LANES);
    } else {
      float each[LANES];
      for (int i = 0; i < LANES; ++i) each[i] = i < count ? LOAD(TARGET_TYPE, row, i * stride) : 0;
      t->block[n] = LANE_LOAD(each);
    }
  }
  lane_transpose(t->block);
}
#endif

// The probabilities of column v.
static inline lane_f dense_at(lane_targets* t, long v) {
#if LANES > 1
  if (v - t->begin >= LANES) dense_fill(t, v);
  return t->block[v - t->begin];
#else
  return t->start[0] < 0 ? 0.0f
                         : LOAD(TARGET_TYPE, t->targets, t->start[0] + v * t->sizes->v_stride);
#endif
}

// The target of a word, times the weight of its class.
static inline lane_f dense_target(const target_sizes* sizes, lane_f probability,
                                  lane_f class_weight) {
  return class_weight * fma((lane_f)(sizes->hard), probability, (lane_f)(sizes->smooth));
}
#endif

// d loss / d logit of column v, whose class weight is c.
static inline lane_f targets_dlogit(lane_targets* t, int v, lane_f logit, lane_f c,
                                    const lane_row* r) {
#if TARGETS == TARGETS_LABELS
  return lane_dlogit(logit, t->label == (lane_i)(v), r->y, c, r);
#elif TARGETS == TARGETS_PAIRS
  lane_i has_pair = (lane_i)(0);
  lane_f factor = (lane_f)(0.0f);
  if (PAIRS_NEAR(t, v)) has_pair = pairs_sum(t, v, &factor);
  return lane_dlogit(logit, has_pair, r->y * factor, c, r);
#else
  return lane_dlogit(logit, (lane_i)(0), (lane_f)(0.0f), dense_target(t->sizes, dense_at(t, v), c),
                     r);
#endif
}

#endif
