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
    global float* at = out->partial + row * PARTIAL_FIELDS;
    for (int field = 0; field < PARTIAL_FIELDS; ++field) at[field] = value;
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

#if TARGETS == TARGETS_PAIRS
// What the pairs of row i of those that count add to its loss, and to its log-probability.
static inline float pairs_loss(long i, float max, float log_s, float lse, float* label_logprob,
                               global const float* values, float label_smoothing,
                               const target_sizes* targets) {
  float value = 0.0f * lse;  // a NaN row stays NaN
  float logprob = value;
  for (int pair = 0; pair < targets->count; ++pair) {
    const long at = pair * targets->ld + i;
    const float probability = values[targets->probs + at];
    // One of 0 adds nothing, even where its logit is -Inf.
    if (probability == 0.0f) continue;
    const float nll = (max - values[targets->logits + at]) + log_s;
    const float hard = (1.0f - label_smoothing) * values[targets->factors + at];
    if (hard != 0.0f) value += hard * nll;
    logprob -= probability * nll;
  }
  *label_logprob = logprob;
  return value;
}
#endif

// Row i of those that count, as a tessera::Partial.
static inline void store_partial(const lane_stats* s, global float* at, long i,
                                 global const float* values, const target_sizes* targets) {
  float logit = 0.0f, sum = 0.0f, weighted_logit = 0.0f, weighted_sum = 0.0f;
#if TARGETS == TARGETS_PAIRS
  for (int pair = 0; pair < targets->count; ++pair) {
    const long place = pair * targets->ld + i;
    const float probability = values[targets->probs + place];
    if (probability == 0.0f) continue;  // nothing, even of -Inf; or no pair of this shard
    const float far = values[targets->logits + place] - stats_shift(s->max);
    const float weighted = values[targets->factors + place];
    logit += probability * far;
    sum += probability;
    if (weighted == 0.0f) continue;
    weighted_logit += weighted * far;
    weighted_sum += weighted;
  }
#elif TARGETS == TARGETS_DENSE && PARTIAL
  logit = s->label_logit;
  sum = s->target_sum;
  weighted_logit = s->weighted_logit;
  weighted_sum = s->weighted_sum;
#endif
  lane_stats fields = *s;
#if TARGETS == TARGETS_DENSE
  fields.label_logit = -INFINITY;
#endif
  for (int field = 0; field < PARTIAL_TARGET_LOGIT; ++field) at[field] = 0.0f;
  stats_store(&fields, at, 1);
  at[PARTIAL_TARGET_LOGIT] = logit;
  at[PARTIAL_TARGET_SUM] = sum;
  at[PARTIAL_WEIGHTED_LOGIT] = weighted_logit;
  at[PARTIAL_WEIGHTED_SUM] = weighted_sum;
}

// What the loss of a row is that has more in it than nll and z-loss. A share of 0 drops even an
// infinite nll.
static inline float with_term(long row, float nll, float lse, global const float* values,
                              const loss_sizes* loss) {
  return (loss->nll_weight != 0.0f ? loss->nll_weight * nll : 0.0f * lse) +
         values[loss->term + row];
}

// Row `row` of the call and i of those that count, whose first statistic is at `stats`,
// [slice][field][ld].
static inline void merge_row(long row, global const float* stats, int slices, int ld,
                             global float* values, const row_outputs* out,
                             const row_output_strides* stride, const loss_sizes* loss,
                             const row_statistics* merged, long i, const target_sizes* targets) {
  lane_stats s;
  stats_load(&s, stats, ld);
  for (int slice = 1; slice < slices; ++slice) {
    lane_stats next;
    stats_load(&next, stats + (long)slice * STAT_FIELDS * ld, ld);
    const float maximum = next.max > s.max ? next.max : s.max;
    stats_move(&s, maximum);
    stats_move(&next, maximum);
    stats_join(&s, &next);
#if TARGETS == TARGETS_LABELS
    s.label_logit = next.label_logit != -INFINITY ? next.label_logit : s.label_logit;
#endif
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
  if (out->partial) {
    store_partial(&s, out->partial + row * PARTIAL_FIELDS, i, values, targets);
  }
  const float log_s = log(s.sum);
  const float lse_value = s.max + log_s;
  PUT(lse, row, lse_value);
#if WANT_ARGMAX
  PUT(argmax, row, s.argmax);
#endif
  // max - logit_y first: a confident row has both equal, and nothing cancels. Where the row has no
  // finite logit both are -Inf and the difference, like the loss, is NaN.
#if TARGETS == TARGETS_LABELS
  const float nll = (s.max - s.label_logit) + log_s;
  // Where no row has a label, none has a probability.
  const float label_logprob = loss->has_targets ? -nll : 0.0f * lse_value;
#elif TARGETS == TARGETS_PAIRS
  float label_logprob;
  const float of_pairs = pairs_loss(i, s.max, log_s, lse_value, &label_logprob, values,
                                    loss->label_smoothing, targets);
#else
  const float label_logprob = s.label_logit - s.target_sum * log_s;
#endif
  PUT(label_logprob, row, label_logprob);
#if WANT_EXP
  PUT(entropy, row, log_s - s.exp_logit / s.sum);
#endif
  const float w = loss->weight >= 0 ? values[loss->weight + row] : 1.0f;
  // A weight of 0 as well leaves the NaN of a row that has no distribution.
  const float z = loss->logsumexp_weight * lse_value * lse_value;
  PUT(z_loss, row, w * z);
  if (out->loss) {
#if TARGETS == TARGETS_LABELS
    const float c = values[loss->class_of_label + row];
    const float hard = (1.0f - loss->label_smoothing) * c;
    // A factor of exactly 0 drops the label's term even where that is infinite; NaN rows stay NaN.
    float value = hard != 0.0f ? hard * nll : 0.0f * lse_value;
#elif TARGETS == TARGETS_PAIRS
    float value = of_pairs;
#else
    // The targets are class weights, smoothed already.
    float value = s.class_sum * log_s - s.class_logit;
#endif
#if WANT_CLASS && TARGETS != TARGETS_DENSE
    // sum of c * (lse - logit), as c's total times log(sum) minus what is relative to the maximum.
    if (loss->label_smoothing != 0.0f) {
      value += loss->label_smoothing / loss->v_total * (s.class_sum * log_s - s.class_logit);
    }
#endif
    if (loss->term >= 0) value = with_term(row, value, lse_value, values, loss);
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
            a.size.ld, values + a.at.values, &out, &a.size.strides, &a.size.loss, &a.size.merged,
            a.size.chunk_begin + i, &a.size.targets);
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
