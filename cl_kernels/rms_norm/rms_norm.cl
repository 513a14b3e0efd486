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
  ((lane_f)(a.size.offset) + load_scale(scale, (v)*scale_stride, scale_stride, count, 0.0f, apart))
#define SCALE_APART IS_APART(SCALE_TYPE, SCALE_CONTIGUOUS, scale)
#else
#define SCALE_AT(v) ((lane_f)(1.0f))
#define SCALE_APART 0
#endif
DEFINE_STORE_COLUMNS(store_out, OUT_TYPE, OUT_CONTIGUOUS)
DEFINE_STORE_COLUMNS(store_sums, TYPE_F32, 1)

#define X_AT(v) load_x(x, (v)*x_stride, x_stride, count, 0.0f, apart)
#define DY_AT(v) load_dy(dy, (v)*dy_stride, dy_stride, count, 0.0f, apart)
#define IS_APART(type, contiguous, p) (!(contiguous) || BEFORE_VECTOR(type, p) > 0)

static inline long part_offset(const row_part* part, long row) {
  return row_offset(&part->geometry, row - part->begin);
}

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
    const int apart =
        IS_APART(X_TYPE, X_CONTIGUOUS, x) || SCALE_APART || IS_APART(OUT_TYPE, OUT_CONTIGUOUS, y);
    lane_f squares = (lane_f)(0.0f);
    FOR_ALL_COLUMNS(v, count, h, apart, {
      const lane_f value = X_AT(v);
      squares += value * value;
    })
    const float mean = GROUP_TOTAL(lane_total(squares)) / (float)h;
    const lane_f root = (lane_f)(1.0f / sqrt(mean + a.size.epsilon));
    FOR_ALL_COLUMNS(v, count, h, apart, {
      store_out(y, v * a.size.y.stride, a.size.y.stride, count, X_AT(v) * root * SCALE_AT(v), 0,
                apart);
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
    global ELEMENT(OUT_TYPE)* grad_x = grad_x_ + a.at.grad_x + part_offset(&a.size.grad_x, row);
    const int apart = IS_APART(X_TYPE, X_CONTIGUOUS, x) || IS_APART(DY_TYPE, DY_CONTIGUOUS, dy) ||
                      SCALE_APART || IS_APART(TYPE_F32, 1, sums) ||
                      (HAS_GRAD_X && IS_APART(OUT_TYPE, OUT_CONTIGUOUS, grad_x));
#if GROUP > 1 && LANES > 1 && HAS_GRAD_SCALE
    // A column of sums may have been another work-item's in a row that was APART, or was not.
    barrier(CLK_GLOBAL_MEM_FENCE);
#endif
    lane_f squares = (lane_f)(0.0f), products = (lane_f)(0.0f);
    FOR_ALL_COLUMNS(v, count, h, apart, {
      const lane_f value = X_AT(v);
      squares += value * value;
      if (HAS_GRAD_X) products += DY_AT(v) * SCALE_AT(v) * value;
    })
    const float mean = GROUP_TOTAL(lane_total(squares)) / (float)h;
    const float root = 1.0f / sqrt(mean + a.size.epsilon);
    const float projection = GROUP_TOTAL(lane_total(products)) / (float)h * root * root;
    const int adds = !(is_new && row == first);
    FOR_ALL_COLUMNS(v, count, h, apart, {
      const lane_f value = X_AT(v);
      const lane_f cotangent = DY_AT(v);
      if (HAS_GRAD_SCALE) {
        // By one work-item whole vectors, for which there is room.
        store_sums(sums, v, 1, GROUP == 1 ? STEP : count, cotangent * value * (lane_f)(root), adds,
                   apart);
      }
      if (HAS_GRAD_X) {
        const lane_f g = (lane_f)(root) * (cotangent * SCALE_AT(v) - value * (lane_f)(projection));
        store_out(grad_x, v * a.size.grad_x.stride, a.size.grad_x.stride, count, g, a.size.add,
                  apart);
      }
    })
  }
}

// Columns of sums that a work-item adds up: many work-items have one each.
#if GROUP > 1
#define SUM_LANES 1
#define SUM_LOAD(p) (*(p))
#define SUM_STORE(v, p) (*(p) = (v))
typedef float sum_f;
#else
#define SUM_LANES LANES
#define SUM_LOAD(p) LANE_LOAD(p)
#define SUM_STORE(v, p) LANE_STORE(v, p)
typedef lane_f sum_f;
#endif

// Adds up `each` rows of sums in the first of them: work-items (SUM_LANES columns, part of the
// rows).
kernel void merge_sums(global float* sums_, merge_sums_arguments a) {
  const long v = (long)get_global_id(0) * SUM_LANES;
  const long first = SECOND_INDEX * a.size.each;
  if (v >= a.size.h || first >= a.size.groups) return;
  global float* sums = sums_ + a.at.sums + v;
  const long last = min(first + a.size.each, a.size.groups);
  sum_f total = (sum_f)(0.0f);
  for (long group = first; group < last; ++group) {
    total += SUM_LOAD(sums + group * a.size.sum_words);
  }
  SUM_STORE(total, sums + first * a.size.sum_words);
}

// One work-item for each SUM_LANES columns.
kernel void sum_scale(global const float* sums_, global ELEMENT(SCALE_OUT_TYPE) * grad_scale_,
                      sum_scale_arguments a) {
  const long v = (long)get_global_id(0) * SUM_LANES;
  if (v >= a.size.h) return;
  global const float* sums = sums_ + a.at.sums;
  sum_f total = (sum_f)(0.0f);
  for (long group = 0; group < a.size.groups; ++group) {
    total += SUM_LOAD(sums + group * a.size.sum_words + v);
  }
  float lanes[SUM_LANES];
  SUM_STORE(total, lanes);
  global ELEMENT(SCALE_OUT_TYPE)* out = grad_scale_ + a.at.grad_scale;
  for (int lane = 0; lane < SUM_LANES && v + lane < a.size.h; ++lane) {
    const long at = (v + lane) * a.size.stride;
    const float before = a.size.add ? LOAD(SCALE_OUT_TYPE, out, at) : 0.0f;
    STORE(SCALE_OUT_TYPE, out, at, before + lanes[lane]);
  }
}
