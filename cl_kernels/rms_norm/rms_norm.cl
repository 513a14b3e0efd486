// SPDX-License-Identifier: Apache-2.0
// y = x / sqrt(mean(x^2) + epsilon) * (offset + scale) over rows of H, and its gradients. A
// work-group takes `rows` rows one after the other; in each, a work-item has LANES columns of every
// STEP.
#include "common/row_pass.cl"
#include "common/rows.cl"
#include "rms_norm/arguments.h"

// Defaults, with which this file compiles by itself.
#ifndef X_TYPE
#define X_TYPE TYPE_F32
#define X_CONTIGUOUS 1
#define SCALE_TYPE TYPE_F32
#define SCALE_CONTIGUOUS 1
#define HAS_SCALE 1
#define DY_TYPE TYPE_F32
#define DY_CONTIGUOUS 1
#define OUT_TYPE TYPE_F32
#define OUT_CONTIGUOUS 1
#define SCALE_OUT_TYPE TYPE_F32
#define HAS_GRAD_X 1
#define HAS_GRAD_SCALE 1
#endif

DEFINE_LOAD_COLUMNS(load_x, X_TYPE, X_CONTIGUOUS)
DEFINE_LOAD_COLUMNS(load_dy, DY_TYPE, DY_CONTIGUOUS)
#if HAS_SCALE
DEFINE_LOAD_COLUMNS(load_scale, SCALE_TYPE, SCALE_CONTIGUOUS)
#define SCALE_AT(v) \
  ((lane_f)(a.size.offset) + load_scale(scale, (v)*scale_stride, scale_stride, count, 0.0f))
#else
#define SCALE_AT(v) ((lane_f)(1.0f))
#endif
DEFINE_STORE_COLUMNS(store_out, OUT_TYPE, OUT_CONTIGUOUS)

#define X_AT(v) load_x(x, (v)*x_stride, x_stride, count, 0.0f)
#define DY_AT(v) load_dy(dy, (v)*dy_stride, dy_stride, count, 0.0f)

static inline long part_offset(const row_part* part, long row) {
  return row_offset(&part->geometry, row - part->begin);
}

// The sum over a work-group's items of what each has; every item gets it. The last barrier keeps
// the next row's values out until all have read.
#if GROUP > 1
#if GROUP > 64
#define PARTS (GROUP / 16)
#else
#define PARTS GROUP
#endif
static inline float group_total(float own, local float* shared) {
  const int item = (int)get_local_id(0);
  shared[item] = own;
  barrier(CLK_LOCAL_MEM_FENCE);
#if GROUP > 64
  // Every item would read hundreds of them: 16 at a time first, apart from what is still read.
  float part = 0.0f;
  for (int other = item % PARTS; other < GROUP; other += PARTS) part += shared[other];
  shared += GROUP;
  if (item < PARTS) shared[item] = part;
  barrier(CLK_LOCAL_MEM_FENCE);
#endif
  float total = 0.0f;
  for (int other = 0; other < PARTS; ++other) total += shared[other];
  barrier(CLK_LOCAL_MEM_FENCE);
  return total;
}
#define SHARED local float shared[GROUP + PARTS];
#define GROUP_TOTAL(own) group_total(own, shared)
#else
#define SHARED
#define GROUP_TOTAL(own) (own)
#endif

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void normalise(
    global const ELEMENT(X_TYPE) * x_, global const ELEMENT(SCALE_TYPE) * scale_,
    global ELEMENT(OUT_TYPE) * y_, normalise_arguments a) {
  SHARED
  const long h = a.size.h, x_stride = a.size.x.stride;
#if HAS_SCALE
  global const ELEMENT(SCALE_TYPE)* scale = scale_ + a.at.scale;
  const long scale_stride = a.size.scale_stride;
#endif
  const long first = a.size.begin + (long)get_group_id(0) * a.size.rows;
  const long last = min(first + a.size.rows, a.size.end);
  for (long row = first; row < last; ++row) {
    global const ELEMENT(X_TYPE)* x = x_ + a.at.x + part_offset(&a.size.x, row);
    global ELEMENT(OUT_TYPE)* y = y_ + a.at.y + part_offset(&a.size.y, row);
    lane_f squares = (lane_f)(0.0f);
    FOR_ALL_COLUMNS(v, count, h, {
      const lane_f value = X_AT(v);
      squares += value * value;
    })
    const float mean = GROUP_TOTAL(lane_total(squares)) / (float)h;
    const lane_f root = (lane_f)(1.0f / sqrt(mean + a.size.epsilon));
    FOR_ALL_COLUMNS(v, count, h, {
      store_out(y, v * a.size.y.stride, a.size.y.stride, count, X_AT(v) * root * SCALE_AT(v), 0);
    })
  }
}

// Work-group g leaves its part of grad_scale in row g of sums, or adds it to what is there.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void differentiate(
    global const ELEMENT(X_TYPE) * x_, global const ELEMENT(SCALE_TYPE) * scale_,
    global const ELEMENT(DY_TYPE) * dy_, global ELEMENT(OUT_TYPE) * grad_x_, global float* sums_,
    differentiate_arguments a) {
  SHARED
  const long h = a.size.h, x_stride = a.size.x.stride, dy_stride = a.size.dy.stride;
#if HAS_SCALE
  global const ELEMENT(SCALE_TYPE)* scale = scale_ + a.at.scale;
  const long scale_stride = a.size.scale_stride;
#endif
  const long first = a.size.begin + (long)get_group_id(0) * a.size.rows;
  const long last = min(first + a.size.rows, a.size.end);
  // Of what is not asked for the memory is null, and never looked at.
  global float* sums = sums_ + a.at.sums + (long)get_group_id(0) * a.size.sum_words;
  const int is_new = (long)get_group_id(0) >= a.size.known;
  for (long row = first; row < last; ++row) {
    global const ELEMENT(X_TYPE)* x = x_ + a.at.x + part_offset(&a.size.x, row);
    global const ELEMENT(DY_TYPE)* dy = dy_ + a.at.dy + part_offset(&a.size.dy, row);
    lane_f squares = (lane_f)(0.0f), products = (lane_f)(0.0f);
    FOR_ALL_COLUMNS(v, count, h, {
      const lane_f value = X_AT(v);
      squares += value * value;
      if (HAS_GRAD_X) products += DY_AT(v) * SCALE_AT(v) * value;
    })
    const float mean = GROUP_TOTAL(lane_total(squares)) / (float)h;
    const float root = 1.0f / sqrt(mean + a.size.epsilon);
    global ELEMENT(OUT_TYPE)* grad_x = grad_x_ + a.at.grad_x + part_offset(&a.size.grad_x, row);
    const float projection = GROUP_TOTAL(lane_total(products)) / (float)h * root * root;
    FOR_ALL_COLUMNS(v, count, h, {
      const lane_f value = X_AT(v);
      const lane_f cotangent = DY_AT(v);
      if (HAS_GRAD_SCALE) {
        const lane_f share = cotangent * value * (lane_f)(root);
        LANE_STORE(is_new && row == first ? share : LANE_LOAD(sums + v) + share, sums + v);
      }
      if (HAS_GRAD_X) {
        const lane_f g = (lane_f)(root) * (cotangent * SCALE_AT(v) - value * (lane_f)(projection));
        store_out(grad_x, v * a.size.grad_x.stride, a.size.grad_x.stride, count, g, a.size.add);
      }
    })
  }
}

// Adds up `each` rows of sums in the first of them: work-items (LANES columns, part of the rows).
kernel void merge_sums(global float* sums_, merge_sums_arguments a) {
  const long v = (long)get_global_id(0) * LANES;
  const long first = SECOND_INDEX * a.size.each;
  if (v >= a.size.h || first >= a.size.groups) return;
  global float* sums = sums_ + a.at.sums + v;
  const long last = min(first + a.size.each, a.size.groups);
  lane_f total = (lane_f)(0.0f);
  for (long group = first; group < last; ++group) {
    total += LANE_LOAD(sums + group * a.size.sum_words);
  }
  LANE_STORE(total, sums + first * a.size.sum_words);
}

// One work-item for each LANES columns.
kernel void sum_scale(global const float* sums_, global ELEMENT(SCALE_OUT_TYPE) * grad_scale_,
                      sum_scale_arguments a) {
  const long v = (long)get_global_id(0) * LANES;
  if (v >= a.size.h) return;
  global const float* sums = sums_ + a.at.sums;
  lane_f total = (lane_f)(0.0f);
  for (long group = 0; group < a.size.groups; ++group) {
    total += LANE_LOAD(sums + group * a.size.sum_words + v);
  }
  float lanes[LANES];
  LANE_STORE(total, lanes);
  global ELEMENT(SCALE_OUT_TYPE)* out = grad_scale_ + a.at.grad_scale;
  for (int lane = 0; lane < LANES && v + lane < a.size.h; ++lane) {
    const long at = (v + lane) * a.size.stride;
    const float before = a.size.add ? LOAD(SCALE_OUT_TYPE, out, at) : 0.0f;
    STORE(SCALE_OUT_TYPE, out, at, before + lanes[lane]);
  }
}
