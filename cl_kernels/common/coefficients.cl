// SPDX-License-Identifier: Apache-2.0
// What the gradient of a row needs (fields ROW_* of common/info.cl), from its statistics and its
// cotangents. Scalar code, so that kernels of any width can include it.
#ifndef TESSERA_COEFFICIENTS_CL
#define TESSERA_COEFFICIENTS_CL

#include "common/info.cl"

// The counted row at `i` of the chunk; its statistics are at row * statistics_stride. They are (max,
// sum) when row_sum is given, else row_max holds lse.
static inline void coefficients_row(
    long i, global float* out, long out_offset, int ld, global const int* info, long info_offset,
    global const int* rows, long rows_offset, long chunk_begin, global const float* row_max,
    long row_max_offset, global const float* row_sum, long row_sum_offset, long statistics_stride,
    global const float* weight, long weight_offset, global const float* class_of_label,
    long class_of_label_offset, global const float* dloss, long dloss_offset, long dloss_stride,
    global const float* dlse, long dlse_offset, int mean, float logsumexp_weight,
    float label_smoothing, float v_total) {
  out += out_offset;
  if (chunk_begin + i >= info[info_offset + INFO_COUNT]) {
    // Padding up to the engine's tile; the negative factor marks it (see lane_dlogit).
    out[ROW_SHIFT * ld + i] = 0.0f;
    out[ROW_INVERSE_SUM * ld + i] = -1.0f;
    out[ROW_P * ld + i] = 0.0f;
    out[ROW_Y * ld + i] = 0.0f;
    out[ROW_C * ld + i] = 0.0f;
    return;
  }
  const long row = rows[rows_offset + chunk_begin + i];
  const float m = row_max[row_max_offset + row * statistics_stride];
  const float s = row_sum ? row_sum[row_sum_offset + row * statistics_stride] : 1.0f;
  const float lse = row_sum ? m + log(s) : m;
  float d = dloss ? dloss[dloss_offset + row * dloss_stride] : 1.0f;
  if (mean) {
    const float denominator = as_float(info[info_offset + INFO_DENOMINATOR]);
    d = denominator == 0.0f ? 0.0f : d / denominator;
  }
  const float w = weight ? weight[weight_offset + row] : 1.0f;
  const float wd = w * d;
  const float c = class_of_label[class_of_label_offset + row];
  const float total = as_float(info[info_offset + INFO_CLASS_TOTAL]);
  const float a = (1.0f - label_smoothing) * c +
                  (label_smoothing != 0.0f ? label_smoothing / v_total * total : 0.0f);
  const float z = logsumexp_weight != 0.0f ? 2.0f * logsumexp_weight * lse : 0.0f;
  // A loss that has no gradient (mean over nothing) must not turn an infinite lse into NaN.
  float p = wd != 0.0f ? wd * (a + z) : 0.0f;
  if (dlse) p += dlse[dlse_offset + row];
  out[ROW_SHIFT * ld + i] = m == -INFINITY ? 0.0f : m;  // as stats_shift
  // A row of nothing but -Inf has s = 0: its probabilities 0 / 0 are NaN, like its loss.
  out[ROW_INVERSE_SUM * ld + i] = 1.0f / s;
  out[ROW_P * ld + i] = p;
  out[ROW_Y * ld + i] = wd * (1.0f - label_smoothing) * c;
  out[ROW_C * ld + i] = wd * label_smoothing / v_total;
}

#endif
