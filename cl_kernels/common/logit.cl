// SPDX-License-Identifier: Apache-2.0
// From a product to a logit, and from a probability to the gradient of a logit; docs/maths.md.
#ifndef TESSERA_LOGIT_CL
#define TESSERA_LOGIT_CL

#include "common/info.cl"
#include "common/lanes.cl"

// scale * z, soft-capped where SOFT_CAP is compiled in.
static inline lane_f lane_logit(lane_f z, float scale, float cap) {
#if SOFT_CAP
  return (lane_f)(cap)*tanh((lane_f)(scale / cap) * z);
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
