// SPDX-License-Identifier: Apache-2.0
// From sums over slices of the vocabulary to what a teacher adds to the loss of a row, its outputs,
// and what its gradient needs. One work-item per row; slices are merged in order.
#undef LANES  // sums of one row, whatever an engine's width
#define LANES 1
#include "common/coefficients.cl"
#include "common/rows.cl"
#include "linear_distillation/divergence.cl"

// What the gradient of row `row` of the call needs besides its maxima and sums. Of a row without a
// distribution nothing is known. `t` is the row's first field of terms.
static inline void put_factor(long row, int is_known, float relative, global float* t, long term_ld,
                              global const int* info, global const float* values, float scale,
                              const loss_sizes* loss, const cotangent_sizes* cotangent) {
  const float factor = scale * row_cotangent(row, values, info, loss, cotangent);
  t[TERM_RELATIVE * term_ld] = relative;
  t[TERM_FACTOR * term_ld] = factor == 0.0f || is_known ? factor : NAN;
}

// The divergence of row `row` of the call, known as a whole, to its loss and outputs; the gradient
// is relative to `relative`. Below 0 is only rounding; a NaN compares false and stays.
static inline void finish_row(long row, float value, float relative, global float* t,
                              global const int* info, global float* values,
                              global float* divergence, global float* statistics,
                              const merge_divergence_sizes* size) {
  value = value < 0.0f ? 0.0f : value;
  const float share = size->alpha * size->temperature * size->temperature;
  if (size->loss.term >= 0) {
    // A share of 0 is absent, however far the teacher is.
    values[size->loss.term + row] = share == 0.0f ? 0.0f : share * value;
  }
  if (divergence) divergence[row_offset(&size->own.divergence, row)] = value;
  if (statistics) {
    statistics[row_offset(&size->own.statistics, row) +
               SAVED_RELATIVE * size->own.statistics_column] = relative;
  }
  // alpha T^2 by the logit, which is T u. Both sums of the row are in its divergence.
  put_factor(row, !isnan(value), relative, t, size->term_ld, info, values,
             size->alpha * size->temperature, &size->loss, &size->cotangent);
}

// Row i of those that count. The rows that pad the last panel get terms of no effect.
kernel void merge_divergence(global const float* sums, global const int* info,
                             global const int* rows, global float* values, global float* terms,
                             global float* divergence, global float* target_entropy,
                             global float* statistics, global float* partial,
                             merge_divergence_arguments a) {
  const long at = get_global_id(0);
  const long i = a.size.chunk_begin + at;
  if (at >= a.size.ld || i >= a.size.term_ld) return;
  const long term_ld = a.size.term_ld;
  global float* t = terms + a.at.terms + i;
  info += a.at.info;
  if (i >= info[INFO_COUNT]) {
    for (int field = 0; field < TERM_FIELDS; ++field) t[field * term_ld] = 0.0f;
    return;
  }
  const long ld = a.size.ld;
  lane_sums s;
  sums_clear(&s);
  for (int slice = 0; slice < a.size.slices; ++slice) {
    global const float* from = sums + a.at.sums + (long)slice * SUM_FIELDS * ld + at;
    lane_sums next;
    next.max_u = from[SUM_MAX_U * ld];
    next.max_v = from[SUM_MAX_V * ld];
    next.u = from[SUM_U * ld];
    next.v = from[SUM_V * ld];
    next.cross = from[SUM_CROSS * ld];
    next.exp_v = from[SUM_EXP_V * ld];
    const float max_u = next.max_u > s.max_u ? next.max_u : s.max_u;
    const float max_v = next.max_v > s.max_v ? next.max_v : s.max_v;
    sums_move(&s, max_u, max_v);
    sums_move(&next, max_u, max_v);
    s.u += next.u;
    s.v += next.v;
    s.cross += next.cross;
    s.exp_v += next.exp_v;
  }
  const float log_u = log(s.u);
  const float log_v = log(s.v);
  t[TERM_MAX_U * term_ld] = s.max_u;
  t[TERM_LOG_SUM_U * term_ld] = log_u;
  t[TERM_MAX_V * term_ld] = s.max_v;
  t[TERM_LOG_SUM_V * term_ld] = log_v;
  const long row = rows[a.at.rows + i];
  if (partial) {
    global float* to = partial + a.at.partial + row * SUM_FIELDS;
    to[SUM_MAX_U] = s.max_u;
    to[SUM_MAX_V] = s.max_v;
    to[SUM_U] = s.u;
    to[SUM_V] = s.v;
    to[SUM_CROSS] = s.cross;
    to[SUM_EXP_V] = s.exp_v;
    return;  // the rest is of the whole
  }
  if (statistics) {
    statistics += a.at.statistics;
    global float* to = statistics + row_offset(&a.size.own.statistics, row);
    to[SAVED_MAX_U * a.size.own.statistics_column] = s.max_u;
    to[SAVED_SUM_U * a.size.own.statistics_column] = s.u;
    to[SAVED_MAX_V * a.size.own.statistics_column] = s.max_v;
    to[SAVED_SUM_V * a.size.own.statistics_column] = s.v;
  }
  if (target_entropy) {
    target_entropy[a.at.target_entropy + row_offset(&a.size.own.entropy, row)] =
        log_v - s.exp_v / s.v;
  }
#if DIVERGENCE != JSD
#if DIVERGENCE == REVERSE_KL
  const float value = (s.cross / s.u - log_u) + log_v;
#else
  const float value = (s.cross / s.v - log_v) + log_u;
#endif
  finish_row(row, value, value, t, info, values + a.at.values,
             divergence ? divergence + a.at.divergence : divergence, statistics, &a.size);
#endif
}

// Row i of those that count, from the caller's statistics. The rows that pad the last panel get
// terms of no effect.
kernel void take_terms(global const float* statistics, global const int* info,
                       global const int* rows, global const float* values, global float* terms,
                       take_terms_arguments a) {
  const long i = get_global_id(0);
  const long ld = a.size.term_ld;
  if (i >= ld) return;
  global float* t = terms + a.at.terms + i;
  info += a.at.info;
  if (i >= info[INFO_COUNT]) {
    for (int field = 0; field < TERM_FIELDS; ++field) t[field * ld] = 0.0f;
    return;
  }
  const long row = rows[a.at.rows + i];
  const long column = a.size.own.statistics_column;
  statistics += a.at.statistics + row_offset(&a.size.own.statistics, row);
  const float sum_u = statistics[SAVED_SUM_U * column];
  const float sum_v = statistics[SAVED_SUM_V * column];
  t[TERM_MAX_U * ld] = statistics[SAVED_MAX_U * column];
  t[TERM_LOG_SUM_U * ld] = log(sum_u);
  t[TERM_MAX_V * ld] = statistics[SAVED_MAX_V * column];
  t[TERM_LOG_SUM_V * ld] = log(sum_v);
  put_factor(row, !isnan(sum_u) && !isnan(sum_v), statistics[SAVED_RELATIVE * column], t, ld, info,
             values + a.at.values, a.size.alpha * a.size.temperature, &a.size.loss,
             &a.size.cotangent);
}

#if DIVERGENCE == JSD
// The same after the second look, whose sums have one base.
kernel void merge_mixture(global const float* sums, global const int* info, global const int* rows,
                          global float* values, global float* terms, global float* divergence,
                          global float* target_entropy, global float* statistics,
                          global float* partial, merge_mixture_arguments a) {
  const long at = get_global_id(0);
  const long i = a.size.chunk_begin + at;
  info += a.at.info;
  if (at >= a.size.ld || i >= info[INFO_COUNT]) return;
  float value = 0.0f, from_q = 0.0f, sum_q = 0.0f;
  for (int slice = 0; slice < a.size.slices; ++slice) {
    global const float* from = sums + a.at.sums + (long)slice * SUM_FIELDS * a.size.ld + at;
    value += from[MIX_BOTH * (long)a.size.ld];
    from_q += from[MIX_Q * (long)a.size.ld];
    sum_q += from[MIX_SUM_Q * (long)a.size.ld];
  }
  // A mean over q, whose sum is 1 but for rounding: a student that is sure of a word is at the
  // mean.
  finish_row(rows[a.at.rows + i], value, from_q / sum_q, terms + a.at.terms + i, info,
             values + a.at.values, divergence ? divergence + a.at.divergence : divergence,
             statistics ? statistics + a.at.statistics : statistics, &a.size);
}
#endif

// Rows of the call that do not count: 0, or NaN where the label is out of range.
kernel void excluded_divergence(global const int* labels, global float* divergence,
                                global float* target_entropy, global float* statistics,
                                global float* partial, excluded_divergence_arguments a) {
  const long row = get_global_id(0);
  if (row >= a.size.rows) return;
  const int label = labels[a.at.labels + row];
  if (label > LABEL_IGNORED) return;
  const float value = label == LABEL_IGNORED ? 0.0f : NAN;
  if (divergence) divergence[a.at.divergence + row_offset(&a.size.own.divergence, row)] = value;
  if (target_entropy) {
    target_entropy[a.at.target_entropy + row_offset(&a.size.own.entropy, row)] = value;
  }
  // The sums of no words at all.
  const float maximum = label == LABEL_IGNORED ? -INFINITY : NAN;
  if (statistics) {
    const long column = a.size.own.statistics_column;
    statistics += a.at.statistics + row_offset(&a.size.own.statistics, row);
    for (int field = 0; field < SAVED_FIELDS; ++field) {
      const int is_maximum = field == SAVED_MAX_U || field == SAVED_MAX_V;
      statistics[field * column] = is_maximum ? maximum : value;
    }
  }
  if (partial) {
    partial += a.at.partial + row * SUM_FIELDS;
    for (int field = 0; field < SUM_FIELDS; ++field) {
      partial[field] = field == SUM_MAX_U || field == SUM_MAX_V ? maximum : value;
    }
  }
}
