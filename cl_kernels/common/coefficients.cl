// SPDX-License-Identifier: Apache-2.0
// What the gradient of a row needs (fields ROW_* of common/info.cl), from its statistics and its
// cotangents. Scalar code, so that kernels of any width can include it.
#ifndef TESSERA_COEFFICIENTS_CL
#define TESSERA_COEFFICIENTS_CL

#include "common/coefficients.h"
#include "common/info.cl"

// Coefficients of a row of padding, up to the engine's tile; the negative factor marks it (see
// lane_dlogit). `out` is the row's first field, `ld` is from one field to the next.
static inline void coefficients_of_padding(global float* out, int ld) {
  out[ROW_SHIFT * ld] = 0.0f;
  out[ROW_INVERSE_SUM * ld] = -1.0f;
  out[ROW_P * ld] = 0.0f;
  out[ROW_Y * ld] = 0.0f;
  out[ROW_C * ld] = 0.0f;
}

// What the gradient of a row's loss is multiplied by: its weight times the cotangent of its loss.
static inline float row_cotangent(long row, global const float* values, global const int* info,
                                  const loss_sizes* loss, const cotangent_sizes* cotangent) {
  float d = cotangent->dloss >= 0 ? values[cotangent->dloss + row * cotangent->dloss_stride] : 1.0f;
  if (loss->mean) {
    const float denominator = as_float(info[INFO_DENOMINATOR]);
    d = denominator == 0.0f ? 0.0f : d / denominator;
  }
  const float w = loss->weight >= 0 ? values[loss->weight + row] : 1.0f;
  return w * d;
}

// Coefficients of the counted row `row` of the call. Its statistics are the maximum m, the sum s
// and the lse; where lse is all that is known, m is lse and s is 1.
static inline void coefficients_row(global float* out, int ld, long row, float m, float s,
                                    float lse, global const float* values, global const int* info,
                                    const loss_sizes* loss, const cotangent_sizes* cotangent) {
  const float label_smoothing = loss->label_smoothing;
  const float wd = row_cotangent(row, values, info, loss, cotangent);
  // The nll is a share of the loss.
  const float hard = loss->nll_weight * (1.0f - label_smoothing);
  const float smooth = loss->nll_weight * label_smoothing / loss->v_total;
  const float c = values[loss->class_of_label + row];
  const float total = as_float(info[INFO_CLASS_TOTAL]);
  const float a = hard * c + (label_smoothing != 0.0f ? smooth * total : 0.0f);
  const float z = loss->logsumexp_weight != 0.0f ? 2.0f * loss->logsumexp_weight * lse : 0.0f;
  // A loss that has no gradient (mean over nothing) must not turn an infinite lse into NaN.
  float p = wd != 0.0f ? wd * (a + z) : 0.0f;
  if (cotangent->dlse >= 0) p += values[cotangent->dlse + row];
  out[ROW_SHIFT * ld] = m == -INFINITY ? 0.0f : m;  // as stats_shift
  // The probabilities of a row of nothing but -Inf are NaN, like its loss; of such a row s is 0, or
  // 1 where lse is all that is known.
  out[ROW_INVERSE_SUM * ld] = m == -INFINITY ? NAN : 1.0f / s;
  out[ROW_P * ld] = p;
#if TARGETS == TARGETS_LABELS
  out[ROW_Y * ld] = wd * hard * c;
#else
  out[ROW_Y * ld] = TARGETS == TARGETS_PAIRS ? wd * hard : 0.0f;
#endif
  out[ROW_C * ld] = wd * (TARGETS == TARGETS_DENSE ? loss->nll_weight : smooth);
}

#endif
