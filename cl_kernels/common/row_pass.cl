// SPDX-License-Identifier: Apache-2.0
// Passing over rows STEP columns at a time: LANES per work-item, GROUP work-items.
#ifndef TESSERA_ROW_PASS_CL
#define TESSERA_ROW_PASS_CL

#include "common/lanes.cl"

#ifndef GROUP
#define GROUP 1
#endif

#define STEP (LANES * GROUP)

// `v` is the first of this work-item's LANES columns.
#define FOR_COLUMNS(v, begin, end) \
  for (long v = (begin) + (long)get_local_id(0) * LANES; v < (end); v += STEP)

// The same from 0 to `h`, with the number of columns that there are from v on: LANES, which the
// compiler then knows, until the last step. NVIDIA's compiler takes no variadic macros, so commas
// of `body` stand in parentheses.
#define FOR_ALL_COLUMNS(v, count, h, body)  \
  {                                         \
    long v = (long)get_local_id(0) * LANES; \
    for (; v + LANES <= (h); v += STEP) {   \
      const long count = LANES;             \
      body                                  \
    }                                       \
    if (v < (h)) {                          \
      const long count = (h)-v;             \
      body                                  \
    }                                       \
  }

static inline float lane_total(lane_f v) {
  float lanes[LANES];
  LANE_STORE(v, lanes);
  float result = lanes[0];
  for (int lane = 1; lane < LANES; ++lane) result += lanes[lane];
  return result;
}

// LANES elements from `start`; those at or beyond `count` are `fill`. Whole vectors where the
// elements lie side by side.
#define DEFINE_LOAD_COLUMNS(name, type, contiguous)                                              \
  static inline lane_f name(global const ELEMENT(type) * p, long start, long stride, long count, \
                            float fill) {                                                        \
    if (contiguous && count >= LANES) return LANE_LOAD_TYPE(type, p + start);                    \
    float lanes[LANES];                                                                          \
    for (int lane = 0; lane < LANES; ++lane) {                                                   \
      lanes[lane] = lane < count ? LOAD(type, p, start + lane * stride) : fill;                  \
    }                                                                                            \
    return LANE_LOAD(lanes);                                                                     \
  }

// Writes LANES elements from `start`, or adds them to what is there; none at or beyond `count`.
#define DEFINE_STORE_COLUMNS(name, type, contiguous)                                     \
  static inline void name(global ELEMENT(type) * p, long start, long stride, long count, \
                          lane_f values, int add) {                                      \
    if (contiguous && count >= LANES) {                                                  \
      if (add) values += LANE_LOAD_TYPE(type, p + start);                                \
      LANE_STORE_TYPE(type, values, p + start);                                          \
      return;                                                                            \
    }                                                                                    \
    float lanes[LANES];                                                                  \
    LANE_STORE(values, lanes);                                                           \
    for (int lane = 0; lane < LANES && lane < count; ++lane) {                           \
      const long at = start + lane * stride;                                             \
      STORE(type, p, at, add ? LOAD(type, p, at) + lanes[lane] : lanes[lane]);           \
    }                                                                                    \
  }

#endif
