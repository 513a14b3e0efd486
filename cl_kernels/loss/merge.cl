// SPDX-License-Identifier: Apache-2.0
// From the statistics of vocabulary slices to the outputs of a row, and to what gradients need of
// it. One work-item per row; slices are merged in order, so a result never depends on timing.
#undef LANES  // statistics of one row, whatever an engine's width
#define LANES 1
#include "common/coefficients.cl"
#include "common/statistics.cl"
#include "loss/arguments.h"

#ifndef CLASS_TYPE
#define CLASS_TYPE TYPE_F32
#endif

// The outputs of a row, as every kernel that writes them has them: each at its first row.
typedef struct {
  global float *loss, *lse;
  global int* argmax;
  global float *label_logprob, *entropy, *z_loss, *statistics, *partial;
} row_outputs;
#define ROW_OUTPUTS_PARAMETERS                                                            \
  global float *loss, global float *lse, global int *argmax, global float *label_logprob, \
      global float *entropy, global float *z_loss, global float *statistics, global float *partial
// Of a kernel with these parameters; what is null has the offset 0.
#define DECLARE_OUTPUTS(name)                                   \
  const row_outputs name = {loss + a.at.loss,                   \
                            lse + a.at.lse,                     \
                            argmax + a.at.argmax,               \
                            label_logprob + a.at.label_logprob, \
                            entropy + a.at.entropy,             \
                            z_loss + a.at.z_loss,               \
                            statistics + a.at.statistics,       \
                            partial + a.at.partial};

#define OUTPUT_ROW(name, row) out->name[(row)*stride->name]
#define PUT(name, row, value) \
  if (out->name) OUTPUT_ROW(name, row) = (value)

static inline void fill_excluded_row(int label, long row, const row_outputs* out,
                                     const row_output_strides* stride) {
  if (label > LABEL_IGNORED) return;
  const float value = label == LABEL_IGNORED ? 0.0f : NAN;
  PUT(loss, row, value);
  PUT(lse, row, value);
  PUT(argmax, row, -1);
  PUT(label_logprob, row, value);
  PUT(entropy, row, value);
  PUT(z_loss, row, value);
  if (out->statistics) {
    global float* at = &OUTPUT_ROW(statistics, row);
    *at = label == LABEL_IGNORED ? -INFINITY : NAN;
    at[stride->statistics_column] = value;
  }
  if (out->partial) {
    // The statistics of no logits at all, which `merge` leaves alone.
    global float* at = out->partial + row * STAT_FIELDS;
    for (int field = 0; field < STAT_FIELDS; ++field) at[field] = value;
    at[STAT_ARGMAX] = as_float(-1);
    if (label == LABEL_IGNORED) {
      at[STAT_MAX] = at[STAT_LABEL_LOGIT] = at[STAT_ARGMAX_VALUE] = -INFINITY;
    }
  }
}

// Rows that do not count: 0 and -1, or NaN where the label is out of range. One work-item per row
// of the call.
kernel void fill_excluded(global const int* labels, ROW_OUTPUTS_PARAMETERS,
                          fill_excluded_arguments a) {
  const long row = get_global_id(0);
  if (row >= a.size.rows) return;
  DECLARE_OUTPUTS(out)
  fill_excluded_row(labels[a.at.labels + row], row, &out, &a.size.strides);
}

// Row `row` of the call, whose first statistic is at `stats`, [slice][field][ld].
static inline void merge_row(long row, global const float* stats, int slices, int ld,
                             global float* values, const row_outputs* out,
                             const row_output_strides* stride, const loss_sizes* loss,
                             const row_statistics* merged) {
  lane_stats s;
  stats_load(&s, stats, ld);
  for (int slice = 1; slice < slices; ++slice) {
    lane_stats next;
    stats_load(&next, stats + (long)slice * STAT_FIELDS * ld, ld);
    const float maximum = next.max > s.max ? next.max : s.max;
    stats_move(&s, maximum);
    stats_move(&next, maximum);
    stats_join(&s, &next);
    s.label_logit = next.label_logit != -INFINITY ? next.label_logit : s.label_logit;
    stats_argmax(&s, next.argmax_value, next.argmax);
  }
  if (merged->max >= 0) {
    values[merged->max + row * merged->stride] = s.max;
    values[merged->sum + row * merged->stride] = s.sum;
  }
  if (out->statistics) {
    global float* at = &OUTPUT_ROW(statistics, row);
    *at = s.max;
    at[stride->statistics_column] = s.sum;
  }
  if (out->partial) stats_store(&s, out->partial + row * STAT_FIELDS, 1);
  const float log_s = log(s.sum);
  const float lse_value = s.max + log_s;
  PUT(lse, row, lse_value);
#if WANT_ARGMAX
  PUT(argmax, row, s.argmax);
#endif
  // max - logit_y first: a confident row has both equal, and nothing cancels. Where the row has no
  // finite logit both are -Inf and the difference, like the loss, is NaN.
  const float nll = (s.max - s.label_logit) + log_s;
  PUT(label_logprob, row, -nll);
#if WANT_EXP
  PUT(entropy, row, log_s - s.exp_logit / s.sum);
#endif
  const float w = loss->weight >= 0 ? values[loss->weight + row] : 1.0f;
  const float z =
      loss->logsumexp_weight != 0.0f ? loss->logsumexp_weight * lse_value * lse_value : 0.0f;
  PUT(z_loss, row, w * z);
  if (out->loss) {
    const float c = values[loss->class_of_label + row];
    const float hard = (1.0f - loss->label_smoothing) * c;
    // A factor of exactly 0 drops the label's term even where that is infinite; NaN rows stay NaN.
    float value = hard != 0.0f ? hard * nll : 0.0f * lse_value;
#if WANT_CLASS
    // sum of c * (lse - logit), as c's total times log(sum) minus what is relative to the maximum.
    if (loss->label_smoothing != 0.0f) {
      value += loss->label_smoothing / loss->v_total * (s.class_sum * log_s - s.class_logit);
    }
#endif
    OUTPUT_ROW(loss, row) = w * (value + z);
  }
}

// One work-item per counted row of a chunk: merges `slices` partial statistics, stored as
// [slice][field][ld], and writes the outputs asked for at the row's own place. What gradients need
// of the merged statistics goes to `values`.
kernel void merge(global const float* stats, global const int* info, global const int* rows,
                  global float* values, ROW_OUTPUTS_PARAMETERS, merge_arguments a) {
  const long i = get_global_id(0);
  if (i >= a.size.ld || a.size.chunk_begin + i >= info[a.at.info + INFO_COUNT]) return;
  DECLARE_OUTPUTS(out)
  merge_row(rows[a.at.rows + a.size.chunk_begin + i], stats + a.at.stats + i, a.size.slices,
            a.size.ld, values + a.at.values, &out, &a.size.strides, &a.size.loss, &a.size.merged);
}

// Coefficients of the row at `i` of those that count, from its statistics in `values`.
static inline void coefficients_from(long i, global float* out, int ld, global const int* info,
                                     global const int* rows, global const float* values,
                                     const loss_sizes* loss, const cotangent_sizes* cotangent,
                                     const row_statistics* given) {
  if (i >= info[INFO_COUNT]) {
    coefficients_of_padding(out, ld);
    return;
  }
  const long row = rows[i];
  const float m = values[given->max + row * given->stride];
  const float s = given->sum >= 0 ? values[given->sum + row * given->stride] : 1.0f;
  const float lse = given->sum >= 0 ? m + log(s) : m;
  coefficients_row(out, ld, row, m, s, lse, values, info, loss, cotangent);
}

// One work-item per counted row of a chunk: the coefficients of its gradient, [field][ld].
kernel void coefficients(global float* out, global const int* info, global const int* rows,
                         global const float* values, coefficients_arguments a) {
  const long i = get_global_id(0);
  if (i >= a.size.ld) return;
  coefficients_from(a.size.chunk_begin + i, out + a.at.out + i, a.size.ld, info + a.at.info,
                    rows + a.at.rows, values + a.at.values, &a.size.loss, &a.size.cotangent,
                    &a.size.given);
}
