// SPDX-License-Identifier: Apache-2.0
// From the statistics of vocabulary slices to the outputs of a row, and to what gradients need of
// it. One work-item per row; slices are merged in order, so a result never depends on timing.
#include "common/info.cl"
#define LANES 1
#include "common/lanes.cl"

#ifndef CLASS_TYPE
#define CLASS_TYPE TYPE_F32
#endif

#define OUTPUT_ROW(name, row) name[name##_offset + (row)*name##_stride]
#define PUT(name, row, value) \
  if (name) OUTPUT_ROW(name, row) = (value)

// Rows that do not count: 0 and -1, or NaN where the label is out of range. One work-item per row
// of the call.
kernel void fill_excluded(global const int* labels, long labels_offset, global float* loss,
                          long loss_offset, long loss_stride, global float* lse, long lse_offset,
                          long lse_stride, global int* argmax, long argmax_offset,
                          long argmax_stride, global float* label_logprob,
                          long label_logprob_offset, long label_logprob_stride,
                          global float* entropy, long entropy_offset, long entropy_stride,
                          global float* z_loss, long z_loss_offset, long z_loss_stride,
                          global float* statistics, long statistics_offset, long statistics_stride,
                          long statistics_column, global float* partial, long partial_offset,
                          long rows) {
  const long row = get_global_id(0);
  if (row >= rows) return;
  const int label = labels[labels_offset + row];
  if (label > LABEL_IGNORED) return;
  const float value = label == LABEL_IGNORED ? 0.0f : NAN;
  PUT(loss, row, value);
  PUT(lse, row, value);
  PUT(argmax, row, -1);
  PUT(label_logprob, row, value);
  PUT(entropy, row, value);
  PUT(z_loss, row, value);
  if (statistics) {
    const long at = statistics_offset + row * statistics_stride;
    statistics[at] = label == LABEL_IGNORED ? -INFINITY : NAN;
    statistics[at + statistics_column] = value;
  }
  if (partial) {
    // The statistics of no logits at all, which `merge` leaves alone.
    global float* out = partial + partial_offset + row * STAT_FIELDS;
    for (int field = 0; field < STAT_FIELDS; ++field) out[field] = value;
    out[STAT_ARGMAX] = as_float(-1);
    if (label == LABEL_IGNORED) {
      out[STAT_MAX] = out[STAT_LABEL_LOGIT] = out[STAT_ARGMAX_VALUE] = -INFINITY;
    }
  }
}

// 0 where the maximum is -Inf, so that differences with it are never (-Inf) - (-Inf).
inline float shift_of(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

// exp(from - to) for to >= from, exactly 1 where nothing changed and 0 where there was nothing.
inline float rescale_factor(float from, float to) {
  return from == to ? 1.0f : lane_exp(from - to);
}

// One work-item per counted row of a chunk: merges `slices` partial statistics, stored as
// [slice][field][ld], and writes the outputs asked for at the row's own place. row_max and row_sum
// keep the merged statistics for gradients.
kernel void merge(global const float* stats, long stats_offset, int slices, int ld,
                  global const int* info, long info_offset, global const int* rows,
                  long rows_offset, long chunk_begin, global const float* weight,
                  long weight_offset, global const float* class_of_label,
                  long class_of_label_offset, global float* row_max, long row_max_offset,
                  global float* row_sum, long row_sum_offset, global float* loss, long loss_offset,
                  long loss_stride, global float* lse, long lse_offset, long lse_stride,
                  global int* argmax, long argmax_offset, long argmax_stride,
                  global float* label_logprob, long label_logprob_offset,
                  long label_logprob_stride, global float* entropy, long entropy_offset,
                  long entropy_stride, global float* z_loss, long z_loss_offset,
                  long z_loss_stride, global float* statistics, long statistics_offset,
                  long statistics_stride, long statistics_column, global float* partial,
                  long partial_offset, float logsumexp_weight, float label_smoothing,
                  float v_total) {
  const long i = get_global_id(0);
  if (i >= ld || chunk_begin + i >= info[info_offset + INFO_COUNT]) return;
  stats += stats_offset;
#define STAT(slice, field) stats[((long)(slice)*STAT_FIELDS + (field)) * ld + i]
  float m = STAT(0, STAT_MAX);
  float s = STAT(0, STAT_SUM);
  float label_logit = STAT(0, STAT_LABEL_LOGIT);
#if WANT_ARGMAX
  float best = STAT(0, STAT_ARGMAX_VALUE);
  int best_at = as_int(STAT(0, STAT_ARGMAX));
#endif
#if WANT_CLASS
  float class_logit = STAT(0, STAT_CLASS_LOGIT);
  float class_sum = STAT(0, STAT_CLASS_SUM);
#endif
#if WANT_EXP
  float exp_logit = STAT(0, STAT_EXP_LOGIT);
#endif
  for (int slice = 1; slice < slices; ++slice) {
    const float m2 = STAT(slice, STAT_MAX);
    const float s2 = STAT(slice, STAT_SUM);
    const float m_new = m2 > m ? m2 : m;
    const float f1 = rescale_factor(m, m_new);
    const float f2 = rescale_factor(m2, m_new);
#if WANT_EXP || WANT_CLASS
    // How far each side's logits move when they become relative to the new maximum.
    const float d1 = shift_of(m) - shift_of(m_new);
    const float d2 = shift_of(m2) - shift_of(m_new);
#endif
#if WANT_EXP
    // A side without any finite logit has s = 0 and adds nothing (its d may be anything).
    const float e2 = STAT(slice, STAT_EXP_LOGIT);
    exp_logit = (f1 != 0.0f ? f1 * (exp_logit + d1 * s) : 0.0f) +
                (f2 != 0.0f ? f2 * (e2 + d2 * s2) : 0.0f);
#endif
#if WANT_CLASS
    const float c2 = STAT(slice, STAT_CLASS_SUM);
    class_logit = (class_logit + (class_sum != 0.0f ? class_sum * d1 : 0.0f)) +
                  (STAT(slice, STAT_CLASS_LOGIT) + (c2 != 0.0f ? c2 * d2 : 0.0f));
    class_sum += c2;
#endif
    s = s * f1 + s2 * f2;
    m = m_new;
    const float l2 = STAT(slice, STAT_LABEL_LOGIT);
    label_logit = l2 != -INFINITY ? l2 : label_logit;
#if WANT_ARGMAX
    const float b2 = STAT(slice, STAT_ARGMAX_VALUE);
    if (b2 > best) {
      best = b2;
      best_at = as_int(STAT(slice, STAT_ARGMAX));
    }
#endif
  }
  const long row = rows[rows_offset + chunk_begin + i];
  if (row_max) {
    row_max[row_max_offset + row] = m;
    row_sum[row_sum_offset + row] = s;
  }
  if (statistics) {
    const long at = statistics_offset + row * statistics_stride;
    statistics[at] = m;
    statistics[at + statistics_column] = s;
  }
  if (partial) {
    global float* out = partial + partial_offset + row * STAT_FIELDS;
    out[STAT_MAX] = m;
    out[STAT_SUM] = s;
    out[STAT_LABEL_LOGIT] = label_logit;
#if WANT_CLASS
    out[STAT_CLASS_LOGIT] = class_logit;
    out[STAT_CLASS_SUM] = class_sum;
#endif
#if WANT_ARGMAX
    out[STAT_ARGMAX_VALUE] = best;
    out[STAT_ARGMAX] = as_float(best_at);
#endif
#if WANT_EXP
    out[STAT_EXP_LOGIT] = exp_logit;
#endif
  }
  const float log_s = log(s);
  const float lse_value = m + log_s;
  PUT(lse, row, lse_value);
#if WANT_ARGMAX
  PUT(argmax, row, best_at);
#endif
  // max - logit_y first: a confident row has both equal, and nothing cancels. Where the row has no
  // finite logit both are -Inf and the difference, like the loss, is NaN.
  const float nll = (m - label_logit) + log_s;
  PUT(label_logprob, row, -nll);
#if WANT_EXP
  PUT(entropy, row, log_s - exp_logit / s);
#endif
  const float w = weight ? weight[weight_offset + row] : 1.0f;
  const float z = logsumexp_weight != 0.0f ? logsumexp_weight * lse_value * lse_value : 0.0f;
  PUT(z_loss, row, w * z);
  if (loss) {
    const float c = class_of_label[class_of_label_offset + row];
    const float hard = (1.0f - label_smoothing) * c;
    // A factor of exactly 0 drops the label's term even where that is infinite; NaN rows stay NaN.
    float value = hard != 0.0f ? hard * nll : 0.0f * lse_value;
#if WANT_CLASS
    // sum of c * (lse - logit), as c's total times log(sum) minus what is relative to the maximum.
    if (label_smoothing != 0.0f) {
      value += label_smoothing / v_total * (class_sum * log_s - class_logit);
    }
#endif
    OUTPUT_ROW(loss, row) = w * (value + z);
  }
}

// One work-item per counted row of a chunk: the coefficients of its gradient, [field][ld]. The
// statistics are (max, sum) when row_sum is given, else row_max holds lse.
kernel void coefficients(global float* out, long out_offset, int ld, global const int* info,
                         long info_offset, global const int* rows, long rows_offset,
                         long chunk_begin, global const float* row_max, long row_max_offset,
                         global const float* row_sum, long row_sum_offset, long statistics_stride,
                         global const float* weight, long weight_offset,
                         global const float* class_of_label, long class_of_label_offset,
                         global const float* dloss, long dloss_offset, long dloss_stride,
                         global const float* dlse, long dlse_offset, int mean,
                         float logsumexp_weight, float label_smoothing, float v_total) {
  const long i = get_global_id(0);
  if (i >= ld) return;
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
  out[ROW_SHIFT * ld + i] = shift_of(m);
  // A row of nothing but -Inf has s = 0: its probabilities 0 / 0 are NaN, like its loss.
  out[ROW_INVERSE_SUM * ld + i] = 1.0f / s;
  out[ROW_P * ld + i] = p;
  out[ROW_Y * ld + i] = wd * (1.0f - label_smoothing) * c;
  out[ROW_C * ld + i] = wd * label_smoothing / v_total;
}
