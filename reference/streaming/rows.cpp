// SPDX-License-Identifier: Apache-2.0
#include "reference/streaming/rows.hpp"

#include <algorithm>
#include <cmath>

#include "reference/streaming/spans.hpp"

namespace tessera::streaming {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Restates the sums relative to `max`, not below their own. Exact when it is their own: the many
/// blocks that do not move the maximum must not round the sums.
void move_max(RowSums& sums, float max) {
  if (!(max > sums.max)) return;
  if (sums.max != -infinity) {
    const double step = static_cast<double>(sums.max) - static_cast<double>(max);
    const double factor = std::exp(step);
    sums.exp_logit = factor * (sums.exp_logit + step * sums.sum);
    sums.sum *= factor;
    sums.class_logit += sums.class_sum * step;
    sums.target_logit += sums.target_sum * step;
    sums.hit_logit += sums.hit_sum * step;
  }
  sums.max = max;
}

void poison(RowSums& sums) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  sums.max = std::numeric_limits<float>::quiet_NaN();
  sums.sum = sums.exp_logit = sums.class_logit = sums.target_logit = sums.hit_logit = nan;
}

}  // namespace

void parallel_for(const Environment& environment, int threads, const char* phase,
                  std::int64_t tasks,
                  const std::function<void(std::int64_t task, int worker)>& body) {
  if (tasks <= 0) return;
  if (threads >= environment.threads) return environment.parallel_for(phase, tasks, body);
  // A worker is a task of its own, which takes every so many-th of the others.
  environment.parallel_for(phase, std::min<std::int64_t>(threads, tasks),
                           [&](std::int64_t worker, int) {
                             for (std::int64_t task = worker; task < tasks; task += threads) {
                               body(task, static_cast<int>(worker));
                             }
                           });
}

std::int64_t TargetForm::scratch(std::int64_t v_block) const {
  return round_up(dense ? v_block : k, lane_quantum);
}

namespace {

/// Columns whose logits are kept: that of the label, or of the row's pairs.
struct Picked {
  const std::int64_t* columns = nullptr;  ///< [count], in the numbering of `first_column`
  float* logits = nullptr;                ///< [count]; those of other columns stay as they are
  std::int64_t count = 0;
};

/// What a block of n logits needs from its surroundings.
struct BlockTerms {
  std::int64_t first_column = 0;  ///< of the block, in the numbering of `argmax` and of `Picked`
  const float* class_weight = nullptr;  ///< the block's own, or nullptr: 1
  double class_sum = 0.0;               ///< sum of c over the block
  bool class_terms = false;
  bool entropy = false;
  bool argmax = false;
};

/// Adds a block of final logits, padded by Kernels::finish, to the row's statistics.
void add_block(const Kernels& kernels, const float* logits, std::int64_t n, const Picked& picked,
               const BlockTerms& terms, RowSums& sums) {
  for (std::int64_t i = 0; i < picked.count; ++i) {
    const std::int64_t local = picked.columns[i] - terms.first_column;
    if (local >= 0 && local < n) picked.logits[i] = logits[local];
  }
  if (terms.argmax && sums.argmax < 0) sums.argmax = terms.first_column;
  if (std::isnan(sums.max)) {
    sums.class_sum += terms.class_sum;
    return;
  }
  const Stretch s =
      kernels.reduce(logits, n, sums.max, terms.class_weight, terms.class_terms, terms.entropy);
  if (std::isnan(s.max)) {
    poison(sums);
  } else {
    if (terms.argmax && s.max > sums.max) {
      std::int64_t column = 0;
      while (logits[column] != s.max) ++column;
      sums.argmax = terms.first_column + column;
    }
    move_max(sums, s.base);
    sums.sum += s.sum;
    sums.exp_logit += s.exp_logit;
    sums.class_logit += s.class_logit;
  }
  sums.class_sum += terms.class_sum;
}

/// The columns whose logits the statistics of a row keep. `sums` has the label's.
Picked picked_of(const LossProblem& p, std::int64_t row, RowSums& sums) {
  if (p.form.dense) return {};
  if (p.form.k > 0)
    return {p.pair_columns + row * p.form.k, p.pair_logits + row * p.form.k, p.form.k};
  return {p.labels + row, &sums.label_logit, 1};
}

/// What a row's gradient takes off. `scratch` has a float for each of its columns.
Hits hits_of(const LossProblem& p, std::int64_t row, const RowGradient& gradient,
             std::int64_t first_column, float* scratch) {
  if (p.form.dense) return {};
  if (p.form.k > 0) {
    return {p.pair_columns + row * p.form.k, p.pair_hits + row * p.form.k, scratch, p.form.k,
            first_column};
  }
  return {p.labels + row, &gradient.hit, scratch, 1, first_column};
}

/// Probabilities of n columns of a row as f32: where they lie, or in `scratch`.
const float* load_targets(const LossProblem& p, const Kernels& kernels, std::int64_t row,
                          std::int64_t first_column, std::int64_t n, float* scratch) {
  const auto from = [&](std::int64_t of_row) {
    const std::int64_t column = first_column * p.target_stride;
    return at(p.targets, p.target_type, p.target_offsets[of_row] + column);
  };
  // The next row's are in other pages, where no processor looks ahead by itself.
  if (row + 1 < p.rows && p.target_stride == 1) {
    const auto* next = static_cast<const char*>(from(row + 1));
    constexpr std::int64_t line = 64;
    for (std::int64_t i = 0; i < n * bytes_of(p.target_type); i += line) {
      __builtin_prefetch(next + i);
    }
  }
  if (p.target_type == Type::f32 && p.target_stride == 1) {
    return static_cast<const float*>(from(row));
  }
  kernels.load(from(row), p.target_type, p.target_stride, n, scratch);
  return scratch;
}

/// The weights of the terms logit - max in n columns of a row's loss: c, or where targets are dense
/// c t, in `scratch`; and their sum, which is given of c.
struct TermWeights {
  const float* values;
  double sum;
};
TermWeights term_weights(const LossProblem& p, const Kernels& kernels, std::int64_t row,
                         std::int64_t first_column, std::int64_t n, double class_sum,
                         float* scratch) {
  const float* c = p.class_weight != nullptr ? p.class_weight + first_column : nullptr;
  if (!p.form.dense || p.hit_terms) return {c, class_sum};
  const float* q = load_targets(p, kernels, row, first_column, n, scratch);
  const Weighed weighed = kernels.weigh(q, n, p.keep, p.smooth, c, scratch);
  return {scratch, static_cast<double>(weighed.sum)};
}

}  // namespace

void add_columns(const LossProblem& p, const Kernels& kernels, std::int64_t row,
                 std::int64_t first_column, std::int64_t n, const float* logits, double class_sum,
                 float* scratch, RowSums& sums) {
  BlockTerms terms;
  terms.first_column = first_column;
  const TermWeights weights = term_weights(p, kernels, row, first_column, n, class_sum, scratch);
  terms.class_weight = weights.values;
  terms.class_sum = weights.sum;
  terms.class_terms = p.class_terms;
  terms.entropy = p.entropy;
  terms.argmax = p.argmax;
  add_block(kernels, logits, n, picked_of(p, row, sums), terms, sums);
  if (!p.target_terms) return;
  const float* q = load_targets(p, kernels, row, first_column, n, scratch);
  // Relative to the maximum that add_block has just set; all -Inf so far: whatever they are
  // relative to.
  const float base = sums.max == -infinity ? 0.0f : sums.max;
  sums.target_sum += static_cast<double>(kernels.weigh(q, n, 1.0f, 0.0f, nullptr, nullptr).sum);
  sums.target_logit += static_cast<double>(kernels.weighted_sum(logits, n, base, q));
  if (!p.hit_terms) return;
  const float* c = p.class_weight != nullptr ? p.class_weight + first_column : nullptr;
  sums.hit_sum += static_cast<double>(kernels.weigh(q, n, 1.0f, 0.0f, c, scratch).sum);
  sums.hit_logit += static_cast<double>(kernels.weighted_sum(logits, n, base, scratch));
}

void differentiate_columns(const LossProblem& p, const Kernels& kernels, std::int64_t row,
                           std::int64_t first_column, std::int64_t n, const RowGradient& gradient,
                           float* logits, float* scratch) {
  // Labels alone have no scratch.
  float label_logit = 0.0f;
  if (p.form.k == 0 && !p.form.dense) scratch = &label_logit;
  const TermWeights weights = term_weights(p, kernels, row, first_column, n, 0.0, scratch);
  kernels.gradient(logits, n, gradient, weights.values,
                   hits_of(p, row, gradient, first_column, scratch), p.scale, p.cap);
}

void merge_into(const RowSums& later, RowSums& sums) {
  if (later.label_logit != -infinity) sums.label_logit = later.label_logit;
  const double class_sum = sums.class_sum + later.class_sum;
  const double target_sum = sums.target_sum + later.target_sum;
  const double hit_sum = sums.hit_sum + later.hit_sum;
  // The earlier columns win ties.
  if (sums.argmax < 0 || later.max > sums.max) sums.argmax = later.argmax;
  if (std::isnan(sums.max) || std::isnan(later.max)) {
    poison(sums);
  } else {
    RowSums other = later;
    move_max(other, sums.max);
    move_max(sums, other.max);
    sums.sum += other.sum;
    sums.exp_logit += other.exp_logit;
    sums.class_logit += other.class_logit;
    sums.target_logit += other.target_logit;
    sums.hit_logit += other.hit_logit;
  }
  sums.class_sum = class_sum;
  sums.target_sum = target_sum;
  sums.hit_sum = hit_sum;
}

double sum_of(const float* class_weight, std::int64_t n) {
  if (class_weight == nullptr) return static_cast<double>(n);
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(class_weight[i]);
  return sum;
}

double log_sum_exp(double max, double sum) {
  return max == -std::numeric_limits<double>::infinity() ? max : max + std::log(sum);
}

RowGradient row_gradient(const Cotangent& c, double max, double sum, double logsumexp_weight) {
  RowGradient g = {};
  g.poisoned = !std::isfinite(max) || !std::isfinite(sum);
  if (g.poisoned) return g;
  const double from_loss = c.loss * (c.a + 2.0 * logsumexp_weight * log_sum_exp(max, sum));
  g.max = static_cast<float>(max);
  g.gain = static_cast<float>((from_loss + c.dlse) / sum);
  g.hit = static_cast<float>(c.loss * c.hit);
  g.smooth = static_cast<float>(c.loss * c.smooth);
  return g;
}

}  // namespace tessera::streaming
