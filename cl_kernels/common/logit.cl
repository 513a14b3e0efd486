// SPDX-License-Identifier: Apache-2.0
// From a product to a logit, and from a probability to the gradient of a logit; docs/maths.md.
#ifndef TESSERA_LOGIT_CL
#define TESSERA_LOGIT_CL

#include "common/info.cl"
#include "common/lanes.cl"

#ifndef EPILOGUE_UNROLLED
#define EPILOGUE_UNROLLED 0
#endif
// An engine that keeps tiles in registers has its epilogues unrolled as a whole, which compilers
// give up where they get too long: there tanh has few instructions, within 2 units of the last
// place. Where e^-2|x| would lose digits it is a polynomial (Cephes, tanhf).
#if EPILOGUE_UNROLLED
static inline lane_f lane_tanh(lane_f x) {
  const lane_f square = x * x;
  lane_f near = fma(square, (lane_f)(-5.70498872745e-3f), (lane_f)(2.06390887954e-2f));
  near = fma(near, square, (lane_f)(-5.37397155531e-2f));
  near = fma(near, square, (lane_f)(1.33314422036e-1f));
  near = fma(near, square, (lane_f)(-3.33332819422e-1f));
  near = fma(near * square, x, x);
  const lane_f e = lane_exp((lane_f)(-2.0f) * fabs(x));
  const lane_f far = copysign(((lane_f)(1.0f) - e) / ((lane_f)(1.0f) + e), x);
  return fabs(x) < (lane_f)(0.625f) ? near : far;
}
#else
ALWAYS_INLINE lane_f lane_tanh(lane_f x) { return tanh(x); }
#endif

// scale * z, soft-capped where SOFT_CAP is compiled in.
static inline lane_f lane_logit(lane_f z, float scale, float cap) {
#if SOFT_CAP
  return (lane_f)(cap)*lane_tanh((lane_f)(scale / cap) * z);
#else
  return (lane_f)(scale)*z;
#endif
}

// d logit / d z, from the logit itself: tanh is logit / cap.
static inline lane_f lane_dz(lane_f dlogit, lane_f logit, float scale, float cap) {
#if SOFT_CAP
  const lane_f t = logit * (lane_f)(1.0f / cap);
  return dlogit * (lane_f)(scale)*fma(-t, t, (lane_f)(1.0f));
#else
  return dlogit * (lane_f)(scale);
#endif
}

// What a lane group's rows need for gradients (fields ROW_* of common/info.cl).
typedef struct {
  lane_f shift, inverse_sum, p, y, c;
} lane_row;

static inline void load_lane_row(lane_row* r, global const float* coefficients, int ld, int row) {
  r->shift = LANE_LOAD(coefficients + ROW_SHIFT * ld + row);
  r->inverse_sum = LANE_LOAD(coefficients + ROW_INVERSE_SUM * ld + row);
  r->p = LANE_LOAD(coefficients + ROW_P * ld + row);
  r->y = LANE_LOAD(coefficients + ROW_Y * ld + row);
  r->c = LANE_LOAD(coefficients + ROW_C * ld + row);
}

// d loss / d logit; `label_share` is what the label takes of it, r->y. Rows that pad a panel give
// exactly 0, whatever their logits are: a select, since 0 * NaN is NaN. A NaN factor compares false
// and stays.
static inline lane_f lane_dlogit(lane_f logit, lane_i is_label, lane_f label_share,
                                 lane_f class_weight, const lane_row* r) {
  const lane_f probability = lane_exp(lane_at_most_0(logit - r->shift)) * r->inverse_sum;
  lane_f g = r->p * probability;
  g = is_label ? g - label_share : g;
#if CLASS_GRADIENT
  g = g - r->c * class_weight;
#endif
  return r->inverse_sum < (lane_f)(0.0f) ? (lane_f)(0.0f) : g;
}

#endif
