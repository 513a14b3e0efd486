// SPDX-License-Identifier: Apache-2.0
// Reading rows of logits, and of their targets and class weights (common/row_pass.cl).
#ifndef TESSERA_COLUMNS_CL
#define TESSERA_COLUMNS_CL

#include "common/logit.cl"
#include "common/row_pass.cl"
#include "common/rows.cl"
#include "common/targets.cl"
#include "softmax_cross_entropy/arguments.h"

// Defaults, with which every file that includes this one compiles by itself.
#ifndef LOGITS_TYPE
#define LOGITS_TYPE TYPE_F32
#endif
#ifndef V_CONTIGUOUS
#define V_CONTIGUOUS 1
#endif
#ifndef CLASS_TYPE
#define CLASS_TYPE TYPE_F32
#endif
#ifndef TARGETS_CONTIGUOUS
#define TARGETS_CONTIGUOUS 0
#endif

// A counted row of logits, and what turns them into final ones.
typedef struct {
  global const ELEMENT(LOGITS_TYPE) * logits;  // its first column
  long v_stride;
  global const ELEMENT(CLASS_TYPE) * class_weight;  // of the first column
  long class_stride;
#if TARGETS == TARGETS_LABELS
  long label;
#else
  const target_sizes* sizes;
#endif
#if TARGETS == TARGETS_PAIRS
  global const int* pairs;  // the column of the first
  global float* values;     // arrays of pairs from there on
#elif TARGETS == TARGETS_DENSE
  global const ELEMENT(TARGET_TYPE) * targets;  // the probability of the first column
#endif
  long begin, end;  // columns of this work-group
  float scale, cap;
  int apart;  // of common/row_pass.cl
} logits_row;

// The row at `i` of a chunk, which a caller has found to be in the segment, and its slice.
static inline void open_row(logits_row* row, global const ELEMENT(LOGITS_TYPE) * logits,
                            global const ELEMENT(CLASS_TYPE) * class_weight,
                            global const int* labels, global float* values,
                            global const ELEMENT(TARGET_TYPE) * targets, long index, long i,
                            long slice, const read_sizes* size) {
  row->logits = logits + row_offset(&size->logits.geometry, index - size->logits.begin);
  row->v_stride = size->logits.v_stride;
  row->class_weight = class_weight;
  row->class_stride = size->class_stride;
#if TARGETS == TARGETS_LABELS
  row->label = labels[size->chunk_begin + i];
#else
  row->sizes = &size->targets;
#endif
#if TARGETS == TARGETS_PAIRS
  row->pairs = labels + size->targets.columns + size->chunk_begin + i;
  row->values = values + size->chunk_begin + i;
#elif TARGETS == TARGETS_DENSE
  row->targets = targets + row_offset(&size->targets.geometry, index);
#endif
  row->begin = slice * size->v_block;
  row->end = min(row->begin + size->v_block, size->v_count);
  row->scale = size->scale;
  row->cap = size->cap;
  row->apart = !V_CONTIGUOUS;
#if TARGETS == TARGETS_DENSE && TARGETS_CONTIGUOUS
  row->apart |= BEFORE_VECTOR(TARGET_TYPE, row->targets) != BEFORE_VECTOR(LOGITS_TYPE, row->logits);
#endif
}

// Where a pass over columns from `begin` to `end` had best stop: before the first whole vector, if
// that is not at `begin`.
static inline long pass_end(const logits_row* row, long begin, long end) {
  if (APART(1) && !row->apart) {
    const int before = BEFORE_VECTOR(LOGITS_TYPE, row->logits + begin);
    if (before > 0 && before < end - begin) return begin + before;
  }
  return end;
}

// Whether a segment has this row of the call.
static inline int in_segment(long index, const logits_segment* segment) {
  return index >= segment->begin && index < segment->end;
}

#if LANES == 1
#define LANE_INDEX 0
#define LANE_MAX(v) (v)
#define LANE_FIRST(v) (v)
#define LANE_STORE_I(v, p) (*(p) = (v))
#else
#if LANES == 4
#define LANE_INDEX (int4)(0, 1, 2, 3)
#elif LANES == 8
#define LANE_INDEX (int8)(0, 1, 2, 3, 4, 5, 6, 7)
#else
#define LANE_INDEX (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#endif
#define LANE_MAX(v) lane_max(v)
#define LANE_FIRST(v) (v).s0
#define LANE_STORE_I(v, p) LANE_CAT(vstore)((v), 0, (p))

static inline float lane_max(lane_f v) {
  float lanes[LANES];
  LANE_STORE(v, lanes);
  float result = lanes[0];
  for (int lane = 1; lane < LANES; ++lane) result = lanes[lane] > result ? lanes[lane] : result;
  return result;
}
#endif
#define LANE_COLUMNS(v, apart) ((lane_i)((int)(v)) + LANE_INDEX * (lane_i)(LANE_PITCH(apart)))

DEFINE_LOAD_COLUMNS(load_logits, LOGITS_TYPE, V_CONTIGUOUS)
#if HAS_CLASS_WEIGHT
DEFINE_LOAD_COLUMNS(load_classes, CLASS_TYPE, 0)
#endif
#if TARGETS == TARGETS_DENSE
DEFINE_LOAD_COLUMNS(load_probabilities, TARGET_TYPE, TARGETS_CONTIGUOUS)
#define PROBABILITIES_OR_0(v, end)                                                              \
  load_probabilities(row->targets, (v)*row->sizes->v_stride, row->sizes->v_stride, (end) - (v), \
                     0.0f, row->apart)
#endif

// Final logits of this work-item's columns from v on; `fill` from `end` on, which no cap may touch.
static inline lane_f columns_logit(const logits_row* row, long v, long end, float fill) {
  lane_f logit = lane_logit(
      load_logits(row->logits, v * row->v_stride, row->v_stride, end - v, 0.0f, row->apart),
      row->scale, row->cap);
  const int pitch = LANE_PITCH(row->apart);
  if (end - v <= (LANES - 1) * pitch) {
    float lanes[LANES];
    LANE_STORE(logit, lanes);
    for (int lane = 0; lane < LANES; ++lane) {
      lanes[lane] = lane * pitch < end - v ? lanes[lane] : fill;
    }
    logit = LANE_LOAD(lanes);
  }
  return logit;
}
#define LOGIT_OR(v, end, fill) columns_logit(row, v, end, fill)

// Class weights of the same columns, 0 beyond the end (such a column adds nothing).
#if HAS_CLASS_WEIGHT
#define CLASSES_OR_0(v, end)                                                                   \
  load_classes(row->class_weight, (v)*row->class_stride, row->class_stride, (end) - (v), 0.0f, \
               row->apart)
#else
#define CLASSES_OR_0(v, end) ones_before((end) - (v), LANE_PITCH(row->apart))
static inline lane_f ones_before(long count, int pitch) {
  if (count > (LANES - 1) * pitch) return (lane_f)(1.0f);
  float lanes[LANES];
  for (int lane = 0; lane < LANES; ++lane) lanes[lane] = lane * pitch < count ? 1.0f : 0.0f;
  return LANE_LOAD(lanes);
}
#endif

#if TARGETS == TARGETS_PAIRS
#define PAIR_COLUMN(row, pair) \
  ((pair) < (row)->sizes->count ? (row)->pairs[(pair) * (row)->sizes->ld] : INT_MAX)
#define PAIR_VALUE(row, array, pair) (row)->values[(row)->sizes->array + (pair) * (row)->sizes->ld]

// The first pair from column v on.
static inline int pair_from(const logits_row* row, long v) {
  int pair = 0;
  while (PAIR_COLUMN(row, pair) < v) ++pair;
  return pair;
}

// Keeps the logits of the pairs of this work-group's columns. In place, the gradient takes theirs.
static inline void keep_pair_logits(const logits_row* row) {
  for (int pair = pair_from(row, row->begin); PAIR_COLUMN(row, pair) < row->end; ++pair) {
    const float z = LOAD(LOGITS_TYPE, row->logits, PAIR_COLUMN(row, pair) * row->v_stride);
    PAIR_VALUE(row, logits, pair) = LANE_FIRST(lane_logit((lane_f)(z), row->scale, row->cap));
  }
}

// What pairs at this work-item's columns from v on take of the gradient, y of a factor of 1; `pair`
// is the first that may be there, and is moved to v. Returns which lanes have one.
static inline lane_i pair_shares(const logits_row* row, int* pair, long v, lane_f y,
                                 lane_f* share) {
  int has_pair[LANES];
  float factors[LANES];
  for (int lane = 0; lane < LANES; ++lane) {
    has_pair[lane] = 0;
    factors[lane] = 0.0f;
  }
  const int pitch = LANE_PITCH(row->apart);
  while (PAIR_COLUMN(row, *pair) < v) ++*pair;
  for (int at = *pair; PAIR_COLUMN(row, at) < v + LANES * pitch; ++at) {
    for (int lane = 0; lane < LANES; ++lane) {
      if (PAIR_COLUMN(row, at) != v + lane * pitch) continue;
      has_pair[lane] = -1;
      factors[lane] += PAIR_VALUE(row, factors, at);
    }
  }
  *share = y * LANE_LOAD(factors);
  return LANE_LOAD(has_pair);
}
#endif

#endif
