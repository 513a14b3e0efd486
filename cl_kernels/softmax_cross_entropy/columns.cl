// SPDX-License-Identifier: Apache-2.0
// Reading rows of logits STEP columns at a time: LANES per work-item, GROUP work-items.
#ifndef TESSERA_COLUMNS_CL
#define TESSERA_COLUMNS_CL

#include "common/lanes.cl"

#define STEP (LANES * GROUP)

#ifndef CLASS_TYPE
#define CLASS_TYPE TYPE_F32
#endif

#define LOGITS_ARGUMENTS                                                                 \
  global const ELEMENT(LOGITS_TYPE) * logits, long logits_offset, row_geometry geometry, \
      long v_stride, long segment_begin, long segment_end
#define CLASS_ARGUMENTS \
  global const ELEMENT(CLASS_TYPE) * class_weight, long class_offset, long class_stride
#define ROW_ARGUMENTS                                                                    \
  global const int *info, long info_offset, global const int *rows, long rows_offset,    \
      global const int *labels, long labels_offset, long chunk_begin

// `v` is the first of this work-item's LANES columns.
#define FOR_COLUMNS(v, begin, end) \
  for (long v = (begin) + (long)get_local_id(0) * LANES; v < (end); v += STEP)

#if LANES == 1
#define LANE_INDEX 0
#define LANE_MAX(v) (v)
#define LANE_FIRST(v) (v)
#define LANE_STORE_I(v, p) (*(p) = (v))
#define LOAD_COLUMNS(type, p, start, stride, count, fill) LOAD(type, p, start)
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

static inline float lane_total(lane_f v) {
  float lanes[LANES];
  LANE_STORE(v, lanes);
  float result = lanes[0];
  for (int lane = 1; lane < LANES; ++lane) result += lanes[lane];
  return result;
}

// LANES elements from `start`; those at or beyond `count` are `fill`. Whole vectors where the
// elements lie side by side.
#define DEFINE_LOAD_COLUMNS(name, type, contiguous)                                       \
  static inline lane_f name(global const ELEMENT(type) * p, long start, long stride, long count, \
                     float fill) {                                                        \
    if (contiguous && count >= LANES) return LANE_LOAD_TYPE(type, p + start);             \
    float lanes[LANES];                                                                   \
    for (int lane = 0; lane < LANES; ++lane) {                                            \
      lanes[lane] = lane < count ? LOAD(type, p, start + lane * stride) : fill;           \
    }                                                                                     \
    return LANE_LOAD(lanes);                                                              \
  }
DEFINE_LOAD_COLUMNS(load_logits, LOGITS_TYPE, V_CONTIGUOUS)
#if HAS_CLASS_WEIGHT
DEFINE_LOAD_COLUMNS(load_classes, CLASS_TYPE, 0)
#endif

// Final logits of the columns v, v + 1, ...; `fill` from `end` on, which no cap may touch.
static inline lane_f columns_logit(global const ELEMENT(LOGITS_TYPE) * logits, long base, long v_stride,
                            long v, long end, float scale, float cap, float fill) {
  lane_f logit =
      lane_logit(load_logits(logits, base + v * v_stride, v_stride, end - v, 0.0f), scale, cap);
  if (end - v < LANES) {
    float lanes[LANES];
    LANE_STORE(logit, lanes);
    for (int lane = 0; lane < LANES; ++lane) lanes[lane] = lane < end - v ? lanes[lane] : fill;
    logit = LANE_LOAD(lanes);
  }
  return logit;
}
#define LOGIT_OR(v, end, fill) columns_logit(logits, base, v_stride, v, end, scale, cap, fill)

// Class weights of the same columns, 0 beyond the end (such a column adds nothing).
#if HAS_CLASS_WEIGHT
#define CLASSES_OR_0(v, end) \
  load_classes(class_weight, class_offset + (v)*class_stride, class_stride, (end) - (v), 0.0f)
#else
#define CLASSES_OR_0(v, end) ones_before(end - v)
static inline lane_f ones_before(long count) {
  if (count >= LANES) return (lane_f)(1.0f);
  float lanes[LANES];
  for (int lane = 0; lane < LANES; ++lane) lanes[lane] = lane < count ? 1.0f : 0.0f;
  return LANE_LOAD(lanes);
}
#endif

#endif
