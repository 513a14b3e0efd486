// SPDX-License-Identifier: Apache-2.0
#include "reference/streaming/rows.hpp"

#include <algorithm>
#include <cmath>

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
  }
  sums.max = max;
}

void poison(RowSums& sums) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  sums.max = std::numeric_limits<float>::quiet_NaN();
  sums.sum = sums.exp_logit = sums.class_logit = nan;
}

}  // namespace

void parallel_for(const Environment& environment, int threads, std::int64_t tasks,
                  const std::function<void(std::int64_t task, int worker)>& body) {
  if (tasks <= 0) return;
  if (threads >= environment.threads) return environment.parallel_for(tasks, body);
  // A worker is a task of its own, which takes every so many-th of the others.
  environment.parallel_for(std::min<std::int64_t>(threads, tasks), [&](std::int64_t worker, int) {
    for (std::int64_t task = worker; task < tasks; task += threads) {
      body(task, static_cast<int>(worker));
    }
  });
}

void add_block(const Kernels& kernels, const float* logits, std::int64_t n, std::int64_t label,
               const BlockTerms& terms, RowSums& sums) {
  const std::int64_t local = label - terms.first_column;
  if (local >= 0 && local < n) sums.label_logit = logits[local];
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

void merge_into(const RowSums& later, RowSums& sums) {
  if (later.label_logit != -infinity) sums.label_logit = later.label_logit;
  const double class_sum = sums.class_sum + later.class_sum;
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
  }
  sums.class_sum = class_sum;
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
