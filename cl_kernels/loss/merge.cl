// SPDX-License-Identifier: Apache-2.0
// From the statistics of vocabulary slices to the outputs of a row, and to what gradients need of
// it. One work-item per row; slices are merged in order, so a result never depends on timing.
#define LANES 1
#include "common/statistics.cl"
#include "common/coefficients.cl"

#ifndef CLASS_TYPE
#define CLASS_TYPE TYPE_F32
#endif

#define OUTPUT_ROW(name, row) name[name##_offset + (row)*name##_stride]
#define PUT(name, row, value) \
  if (name) OUTPUT_ROW(name, row) = (value)

// The outputs of a row, as every kernel that writes them takes them.
#define OUTPUT_PARAMETERS                                                                         \
  global float* loss, long loss_offset, long loss_stride, global float* lse, long lse_offset,     \
      long lse_stride, global int* argmax, long argmax_offset, long argmax_stride,                \
      global float* label_logprob, long label_logprob_offset, long label_logprob_stride,          \
      global float* entropy, long entropy_offset, long entropy_stride, global float* z_loss,      \
      long z_loss_offset, long z_loss_stride, global float* statistics, long statistics_offset,   \
      long statistics_stride, long statistics_column, global float* partial, long partial_offset
#define OUTPUT_ARGUMENTS                                                                          \
  loss, loss_offset, loss_stride, lse, lse_offset, lse_stride, argmax, argmax_offset, argmax_stride, \
      label_logprob, label_logprob_offset, label_logprob_stride, entropy, entropy_offset,         \
      entropy_stride, z_loss, z_loss_offset, z_loss_stride, statistics, statistics_offset,        \
      statistics_stride, statistics_column, partial, partial_offset

static inline void fill_excluded_row(int label, long row, OUTPUT_PARAMETERS) {
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

// Rows that do not count: 0 and -1, or NaN where the label is out of range. One work-item per row
// of the call.
kernel void fill_excluded(global const int* labels, long labels_offset, OUTPUT_PARAMETERS,
                          long rows) {
  const long row = get_global_id(0);
  if (row >= rows) return;
  fill_excluded_row(labels[labels_offset + row], row, OUTPUT_ARGUMENTS);
}

// The counted row at `i` of the chunk.
static inline void merge_row(long i, global const float* stats, long stats_offset, int slices,
                             int ld, long row, global const float* weight, long weight_offset,
                             global const float* class_of_label, long class_of_label_offset,
                             global float* row_max, long row_max_offset, global float* row_sum,
                             long row_sum_offset, OUTPUT_PARAMETERS, float logsumexp_weight,
                             float label_smoothing, float v_total) {
  stats += stats_offset;
  lane_stats s;
  stats_load(&s, stats + i, ld);
  for (int slice = 1; slice < slices; ++slice) {
    lane_stats next;
    stats_load(&next, stats + (long)slice * STAT_FIELDS * ld + i, ld);
    const float maximum = next.max > s.max ? next.max : s.max;
    stats_move(&s, maximum);
    stats_move(&next, maximum);
    stats_join(&s, &next);
    s.label_logit = next.label_logit != -INFINITY ? next.label_logit : s.label_logit;
    stats_argmax(&s, next.argmax_value, next.argmax);
  }
  if (row_max) {
    row_max[row_max_offset + row] = s.max;
    row_sum[row_sum_offset + row] = s.sum;
  }
  if (statistics) {
    const long at = statistics_offset + row * statistics_stride;
    statistics[at] = s.max;
    statistics[at + statistics_column] = s.sum;
  }
  if (partial) {
    stats_store(&s, partial + partial_offset + row * STAT_FIELDS, 1);
  }
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
      value += label_smoothing / v_total * (s.class_sum * log_s - s.class_logit);
    }
#endif
    OUTPUT_ROW(loss, row) = w * (value + z);
  }
}

// One work-item per counted row of a chunk: merges `slices` partial statistics, stored as
// [slice][field][ld], and writes the outputs asked for at the row's own place. row_max and row_sum
// keep the merged statistics for gradients.
kernel void merge(global const float* stats, long stats_offset, int slices, int ld,
                  global const int* info, long info_offset, global const int* rows,
                  long rows_offset, long chunk_begin, global const float* weight,
                  long weight_offset, global const float* class_of_label,
                  long class_of_label_offset, global float* row_max, long row_max_offset,
                  global float* row_sum, long row_sum_offset, OUTPUT_PARAMETERS,
                  float logsumexp_weight, float label_smoothing, float v_total) {
  const long i = get_global_id(0);
  if (i >= ld || chunk_begin + i >= info[info_offset + INFO_COUNT]) return;
  merge_row(i, stats, stats_offset, slices, ld, rows[rows_offset + chunk_begin + i], weight,
            weight_offset, class_of_label, class_of_label_offset, row_max, row_max_offset, row_sum,
            row_sum_offset, OUTPUT_ARGUMENTS, logsumexp_weight, label_smoothing, v_total);
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
  coefficients_row(i, out, out_offset, ld, info, info_offset, rows, rows_offset, chunk_begin,
                   row_max, row_max_offset, row_sum, row_sum_offset, statistics_stride, weight,
                   weight_offset, class_of_label, class_of_label_offset, dloss, dloss_offset,
                   dloss_stride, dlse, dlse_offset, mean, logsumexp_weight, label_smoothing,
                   v_total);
}
