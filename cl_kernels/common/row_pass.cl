// SPDX-License-Identifier: Apache-2.0
// Passing over rows STEP columns at a time: LANES per work-item, GROUP work-items.
//
// The columns of a work-item lie side by side, before those of the next one. Where work-items share
// a row, LANES elements are one access to memory, which takes the address of a whole vector. In a
// row that has none where another array of the pass does, or whose elements are not neighbours, the
// columns of a work-item are APART: GROUP columns lie between two of them, so that neighbouring
// work-items have neighbouring columns there too.
#ifndef TESSERA_ROW_PASS_CL
#define TESSERA_ROW_PASS_CL

#include "common/lanes.cl"

#ifndef GROUP
#define GROUP 1
#endif

#define STEP (LANES * GROUP)

// `apart`, wherever it is given, is 1 in such a row.
#if GROUP > 1 && LANES > 1
#define APART(apart) (apart)
#define COLUMNS_LOAD(type, p) LANE_LOAD_WHOLE(type, p)
#define COLUMNS_STORE(type, v, p) LANE_STORE_WHOLE(type, v, p)
#else
#define APART(apart) 0
#define COLUMNS_LOAD(type, p) LANE_LOAD_TYPE(type, p)
#define COLUMNS_STORE(type, v, p) LANE_STORE_TYPE(type, v, p)
#endif
// Columns from one lane to the next.
#define LANE_PITCH(apart) (APART(apart) ? GROUP : 1)
// Elements from `p` on that come before the address of a whole vector.
#define BEFORE_VECTOR(type, p) ((int)(-((size_t)(p) / ELEMENT_BYTES(type)) & (size_t)(LANES - 1)))

// The first column from `begin` on of this work-item's LANES.
#define FIRST_COLUMN(begin, apart) ((begin) + (long)get_local_id(0) * (APART(apart) ? 1 : LANES))
#define FOR_COLUMNS(v, begin, end, apart) \
  for (long v = FIRST_COLUMN(begin, apart); v < (end); v += STEP)

// The same from 0 to `h`, with the number of columns that there are from v on: STEP or more, which
// the compiler then knows, while that is all lanes'. NVIDIA's compiler takes no variadic macros, so
// commas of `body` stand in parentheses.
#define FOR_ALL_COLUMNS(v, count, h, apart, body)                  \
  {                                                                \
    long v = FIRST_COLUMN(0, apart);                               \
    for (; v + (LANES - 1) * LANE_PITCH(apart) < (h); v += STEP) { \
      const long count = STEP;                                     \
      body                                                         \
    }                                                              \
    if (v < (h)) {                                                 \
      const long count = (h)-v;                                    \
      body                                                         \
    }                                                              \
  }

static inline float lane_total(lane_f v) {
  float lanes[LANES];
  LANE_STORE(v, lanes);
  float result = lanes[0];
  for (int lane = 1; lane < LANES; ++lane) result += lanes[lane];
  return result;
}

// What a work-group's items have comes together in order; every item gets it. A kernel declares
// SHARED. The last barrier keeps what comes next out until all have read.
#if GROUP > 1
// A GPU keeps what an unrolled loop has an index of in registers.
#define GROUP_UNROLLED _Pragma("unroll")
#if GROUP > 64
// Every item would read hundreds of them: 16 at a time first, apart from what is still read.
#define PARTS (GROUP / 16)
#define FOLD_PARTS(FOLD)                                                  \
  float part = shared[item % PARTS];                                      \
  for (int other = item % PARTS + PARTS; other < GROUP; other += PARTS) { \
    part = FOLD(part, shared[other]);                                     \
  }                                                                       \
  shared += GROUP;                                                        \
  if (item < PARTS) shared[item] = part;                                  \
  barrier(CLK_LOCAL_MEM_FENCE);
#else
#define PARTS GROUP
#define FOLD_PARTS(FOLD)
#endif
#define DEFINE_GROUP_FOLD(name, FOLD)                                                 \
  static inline float name(float own, local float* shared) {                          \
    const int item = (int)get_local_id(0);                                            \
    shared[item] = own;                                                               \
    barrier(CLK_LOCAL_MEM_FENCE);                                                     \
    FOLD_PARTS(FOLD)                                                                  \
    float result = shared[0];                                                         \
    for (int other = 1; other < PARTS; ++other) result = FOLD(result, shared[other]); \
    barrier(CLK_LOCAL_MEM_FENCE);                                                     \
    return result;                                                                    \
  }
#define FOLD_SUM(a, b) ((a) + (b))
#define FOLD_MAX(a, b) ((b) > (a) ? (b) : (a))
// Of the bits of int, since all of `shared` is float.
#define FOLD_FIRST(a, b) (as_int(b) < as_int(a) ? (b) : (a))
DEFINE_GROUP_FOLD(group_total, FOLD_SUM)
DEFINE_GROUP_FOLD(group_max, FOLD_MAX)
DEFINE_GROUP_FOLD(group_first, FOLD_FIRST)
#define SHARED local float shared[GROUP + PARTS];
#define GROUP_TOTAL(own) group_total(own, shared)
#define GROUP_MAX(own) group_max(own, shared)
#define GROUP_FIRST(own) as_int(group_first(as_float(own), shared))
#else
#define GROUP_UNROLLED
#define SHARED
#define GROUP_TOTAL(own) (own)
#define GROUP_MAX(own) (own)
#define GROUP_FIRST(own) (own)
#endif

// LANES elements from `start`, those of columns at or beyond `count` are `fill`. Whole vectors
// where the elements lie side by side.
#define DEFINE_LOAD_COLUMNS(name, type, contiguous)                                              \
  static inline lane_f name(global const ELEMENT(type) * p, long start, long stride, long count, \
                            float fill, int apart) {                                             \
    if (contiguous && !APART(apart) && count >= LANES) return COLUMNS_LOAD(type, p + start);     \
    const int pitch = LANE_PITCH(apart);                                                         \
    float lanes[LANES];                                                                          \
    for (int lane = 0; lane < LANES; ++lane) {                                                   \
      const int column = lane * pitch;                                                           \
      lanes[lane] = column < count ? LOAD(type, p, start + column * stride) : fill;              \
    }                                                                                            \
    return LANE_LOAD(lanes);                                                                     \
  }

// Writes LANES elements from `start`, or adds them to what is there; none at or beyond `count`.
#define DEFINE_STORE_COLUMNS(name, type, contiguous)                                     \
  static inline void name(global ELEMENT(type) * p, long start, long stride, long count, \
                          lane_f values, int add, int apart) {                           \
    if (contiguous && !APART(apart) && count >= LANES) {                                 \
      if (add) values += COLUMNS_LOAD(type, p + start);                                  \
      COLUMNS_STORE(type, values, p + start);                                            \
      return;                                                                            \
    }                                                                                    \
    const int pitch = LANE_PITCH(apart);                                                 \
    float lanes[LANES];                                                                  \
    LANE_STORE(values, lanes);                                                           \
    GROUP_UNROLLED for (int lane = 0; lane < LANES && lane * pitch < count; ++lane) {    \
      const long at = start + lane * pitch * stride;                                     \
      STORE(type, p, at, add ? LOAD(type, p, at) + lanes[lane] : lanes[lane]);           \
    }                                                                                    \
  }

#endif
