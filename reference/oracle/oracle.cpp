// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/oracle.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/oracle/require.hpp"

namespace tessera::oracle {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixMap = Eigen::Map<Matrix>;
using ConstMatrixMap = Eigen::Map<const Matrix>;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

void check(const Problem& p) {
  if (p.from_logits()) {
    require_size(p.logits.size(), p.b * p.v, "logits");
  } else {
    require_size(p.x.size(), p.b * p.h, "x");
    require_size(p.w.size(), p.h * p.v, "w");
    require_optional(p.bias.size(), p.v, "bias");
  }
  if (p.k > 0) {
    require_size(p.target_indices.size(), p.b * p.k, "target_indices");
    require_size(p.target_probs.size(), p.b * p.k, "target_probs");
  } else if (!p.targets.empty()) {
    require_size(p.targets.size(), p.b * p.v_total(), "targets");
  } else if (!p.distillation.given || p.has_targets()) {
    require_size(p.labels.size(), p.b, "labels");
  }
  require_optional(p.weight.size(), p.b, "weight");
  require_optional(p.class_weight.size(), p.v_total(), "class_weight");
  require_optional(p.dloss.size(), p.options.reduction == Reduction::none ? p.b : 1, "dloss");
  require_optional(p.dlse.size(), p.b, "dlse");
  require_optional(p.max.size(), p.b, "max");
  require_size(p.sum.size(), static_cast<std::int64_t>(p.max.size()), "sum");
  require_optional(p.divergence_statistics.size(), 5 * p.b, "divergence_statistics");
}

bool counts(const Problem& p, std::int64_t row) { return !is_ignored(p, row) && !is_bad(p, row); }

double weight_of(const Problem& p, std::int64_t row) {
  return p.weight.empty() ? 1.0 : p.weight[index(row)];
}

/// Class weight of a global column.
double class_weight_of(const Problem& p, std::int64_t column) {
  return p.class_weight.empty() ? 1.0 : p.class_weight[index(column)];
}

/// sum of q_v c_v over the row's target.
double class_weight_of_target(const Problem& p, std::int64_t row) {
  double sum = 0.0;
  for (const auto& [column, probability] : target_of(p, row)) {
    sum += probability * class_weight_of(p, column);
  }
  return sum;
}

/// A term of coefficient 0 is absent, so that 0 * Inf is 0.
double term(double coefficient, double value) {
  return coefficient == 0.0 ? 0.0 : coefficient * value;
}

/// x with the rows left out that `keep` rejects (zeros instead): whatever they hold is not read.
template <class Keep>
Matrix rows_of_x(const Problem& p, Keep keep) {
  Matrix x = Matrix::Zero(p.b, p.h);
  for (std::int64_t row = 0; row < p.b; ++row) {
    if (!keep(row)) continue;
    for (std::int64_t k = 0; k < p.h; ++k) x(row, k) = p.x[index(row * p.h + k)];
  }
  return x;
}

/// z = x . w + bias, or the given logits: [b, v] before scale and cap; 0 in ignored rows.
std::vector<double> raw_logits(const Problem& p) {
  std::vector<double> z(index(p.b * p.v), 0.0);
  MatrixMap z_map(z.data(), p.b, p.v);
  if (p.from_logits()) {
    z_map = ConstMatrixMap(p.logits.data(), p.b, p.v);
  } else {
    const Matrix x = rows_of_x(p, [&](std::int64_t row) { return !is_ignored(p, row); });
    if (p.h > 0) z_map = x * ConstMatrixMap(p.w.data(), p.h, p.v);
    if (!p.bias.empty()) z_map.rowwise() += ConstMatrixMap(p.bias.data(), 1, p.v).row(0);
  }
  for (std::int64_t row = 0; row < p.b; ++row) {
    if (is_ignored(p, row)) z_map.row(row).setZero();
  }
  return z;
}

/// cap * tanh(scale * z / cap), or scale * z without a cap.
double final_logit(const LossOptions& options, double z) {
  const double scaled = options.logit_scale * z;
  const double cap = options.logit_soft_cap;
  return cap == 0.0 ? scaled : cap * std::tanh(scaled / cap);
}

/// d final_logit / dz.
double final_logit_slope(const LossOptions& options, double z) {
  const double scale = options.logit_scale;
  const double cap = options.logit_soft_cap;
  if (cap == 0.0) return scale;
  const double t = std::tanh(scale * z / cap);
  return scale * (1.0 - t * t);
}

/// exp(logit - max); 0 for a masked word even where max is -Inf too.
double shifted_exp(double logit, double max) {
  return logit == -infinity ? 0.0 : std::exp(logit - max);
}

struct Statistics {
  double max = -infinity;  ///< NaN when any logit is
  double sum = 0.0;
  double lse() const { return max == -infinity ? -infinity : max + std::log(sum); }
  /// lse - logit, without the cancellation of forming lse first.
  double distance(double logit) const { return (max - logit) + std::log(sum); }
  /// p of the softmax; NaN for a row that has none.
  double probability(double logit) const {
    if (std::isnan(max) || max == -infinity) return nan_value;
    return shifted_exp(logit, max) / sum;
  }
};

Statistics statistics_of(const double* logits, std::int64_t v) {
  Statistics s;
  for (std::int64_t j = 0; j < v; ++j) {
    // A NaN logit fails the comparison and is taken; a NaN maximum is kept.
    if (!std::isnan(s.max) && !(s.max >= logits[j])) s.max = logits[j];
  }
  for (std::int64_t j = 0; j < v; ++j) s.sum += shifted_exp(logits[j], s.max);
  return s;
}

/// Column of the largest logit as f32, lowest on ties; a NaN loses to everything but a NaN.
std::int64_t argmax_of(const double* logits, std::int64_t v) {
  std::int64_t best = 0;
  for (std::int64_t j = 1; j < v; ++j) {
    const auto value = static_cast<float>(logits[j]);
    const auto best_value = static_cast<float>(logits[best]);
    if (value > best_value || (std::isnan(best_value) && !std::isnan(value))) best = j;
  }
  return best;
}

/// The sum over the counted rows.
double mean_denominator(const Problem& p) {
  double denominator = 0.0;
  for (std::int64_t row = 0; row < p.b; ++row) {
    if (counts(p, row)) denominator += weight_of(p, row) * share_of(p, row);
  }
  return denominator;
}

/// The weighted loss of one row of a whole problem: nll, or what distillation makes of it, and
/// z-term.
double row_loss(const Problem& p, std::int64_t row, const double* logits, const Statistics& s,
                double divergence) {
  // Bad: there is no label to speak of. All -Inf: 0 / 0.
  if (is_bad(p, row) || s.max == -infinity) return nan_value;
  const double eps = p.options.label_smoothing;
  double nll = 0.0;
  for (const auto& [column, probability] : target_of(p, row)) {
    nll += term((1.0 - eps) * probability * class_weight_of(p, column), s.distance(logits[column]));
  }
  if (eps != 0.0) {
    double smooth = 0.0;
    for (std::int64_t j = 0; j < p.v; ++j) {
      smooth += term(class_weight_of(p, j), s.distance(logits[j]));
    }
    nll += eps / static_cast<double>(p.v) * smooth;
  }
  if (const Distillation& d = p.distillation; d.given) {
    nll = term(1.0 - d.alpha, nll) + term(d.alpha * d.temperature * d.temperature, divergence);
  }
  const double lse = s.lse();
  return weight_of(p, row) * (nll + p.options.logsumexp_weight * lse * lse);
}

/// From the per-row losses (0 in ignored rows) to the loss.
std::vector<double> reduce(const Problem& p, const std::vector<double>& row_losses) {
  if (p.options.reduction == Reduction::none) return row_losses;
  double total = 0.0;
  bool any_bad = false;
  for (std::int64_t row = 0; row < p.b; ++row) {
    total += row_losses[index(row)];
    any_bad = any_bad || is_bad(p, row);
  }
  if (any_bad) return {nan_value};
  if (p.options.reduction == Reduction::sum) return {total};
  const double denominator = mean_denominator(p);
  return {denominator == 0.0 ? 0.0 : total / denominator};
}

void size_rows(Values& values, const Problem& p) {
  const std::size_t b = index(p.b);
  for (auto* field :
       {&values.lse, &values.class_logit, &values.class_sum, &values.sum, &values.exp_logit,
        &values.target_logit, &values.target_sum, &values.weighted_logit, &values.weighted_sum}) {
    field->assign(b, 0.0);
  }
  for (auto* field : {&values.max, &values.label_logit, &values.argmax_value}) {
    field->assign(b, -infinity);
  }
  values.argmax.assign(b, -1);
  if (!p.whole()) return;
  for (auto* field : {&values.label_logprob, &values.entropy, &values.z_loss}) {
    field->assign(b, 0.0);
  }
}

/// The fields of tessera::Partial, over this call's columns.
void partial_row(Values& values, const Problem& p, std::int64_t row, const double* logits,
                 const Statistics& s) {
  const std::size_t i = index(row);
  values.max[i] = s.max;
  values.sum[i] = s.sum;
  values.lse[i] = s.lse();
  for (std::int64_t j = 0; j < p.v; ++j) {
    const double c = class_weight_of(p, p.options.vocab_offset + j);
    const double shifted = logits[j] == -infinity ? -infinity : logits[j] - s.max;
    values.class_sum[i] += c;
    values.class_logit[i] += term(c, shifted);
    values.exp_logit[i] += term(shifted_exp(logits[j], s.max), shifted);
  }
  if (p.v > 0) {
    const std::int64_t best = argmax_of(logits, p.v);
    values.argmax[i] = p.options.vocab_offset + best;
    values.argmax_value[i] = logits[best];
  }
  if (is_bad(p, row)) return;
  for (const auto& [column, probability] : target_of(p, row)) {
    const std::int64_t local = column - p.options.vocab_offset;
    if (local < 0 || local >= p.v) continue;
    if (!p.labels.empty()) {
      values.label_logit[i] = logits[local];
      continue;
    }
    const double c = class_weight_of(p, column);
    const double shifted = logits[local] == -infinity ? -infinity : logits[local] - s.max;
    values.target_sum[i] += probability;
    values.target_logit[i] += term(probability, shifted);
    values.weighted_sum[i] += probability * c;
    values.weighted_logit[i] += term(probability * c, shifted);
  }
}

/// (1 - eps) c_v q_v of this call's columns.
std::vector<double> hits_of(const Problem& p, std::int64_t row) {
  std::vector<double> hits(index(p.v), 0.0);
  for (const auto& [column, probability] : target_of(p, row)) {
    const std::int64_t local = column - p.options.vocab_offset;
    if (local < 0 || local >= p.v) continue;
    const double keep = 1.0 - static_cast<double>(p.options.label_smoothing);
    hits[index(local)] += keep * probability * class_weight_of(p, column);
  }
  return hits;
}

}  // namespace

Values forward(const Problem& p) {
  check(p);
  Values values;
  values.logits = raw_logits(p);
  size_rows(values, p);
  std::vector<double> row_losses(index(p.b), 0.0);
  const std::vector<double> teacher = teacher_logits(p);
  for (std::int64_t row = 0; row < p.b; ++row) {
    if (is_ignored(p, row)) {
      if (p.distillation.given) keep({}, p, row, values);
      continue;
    }
    double* logits = values.logits.data() + row * p.v;
    for (std::int64_t j = 0; j < p.v; ++j) logits[j] = final_logit(p.options, logits[j]);
    const Statistics s = statistics_of(logits, p.v);
    partial_row(values, p, row, logits, s);
    const std::size_t i = index(row);
    if (p.distillation.given) {
      keep(divergence_of(p.distillation, logits, teacher.data() + row * p.v, p.v), p, row, values);
    }
    if (!p.whole()) continue;

    row_losses[i] = row_loss(p, row, logits, s, p.distillation.given ? values.divergence[i] : 0.0);
    if (is_bad(p, row)) {
      spoil(values, i);
      continue;
    }
    // NaN where the row has no distribution, whatever its target.
    values.label_logprob[i] = 0.0 * s.lse();
    for (const auto& [column, probability] : target_of(p, row)) {
      values.label_logprob[i] -= term(probability, s.distance(logits[column]));
    }
    // H = -sum p log p with log p = (logit - max) - log(sum).
    values.entropy[i] = std::log(s.sum) - values.exp_logit[i] / s.sum;
    const double lse = s.lse();
    values.z_loss[i] = weight_of(p, row) * p.options.logsumexp_weight * lse * lse;
  }
  if (p.whole()) values.loss = reduce(p, row_losses);
  return values;
}

Gradients backward(const Problem& p) {
  check(p);
  const double eps = p.options.label_smoothing;
  const double v_total = static_cast<double>(p.v_total());
  const double denominator = mean_denominator(p);
  double class_total = 0.0;
  for (std::int64_t j = 0; j < p.v_total(); ++j) class_total += class_weight_of(p, j);

  Gradients gradients;
  gradients.dz = raw_logits(p);  // overwritten row by row with the gradient with respect to it
  std::vector<double> logits(index(p.v));
  const Distillation& d = p.distillation;
  const std::vector<double> teacher = teacher_logits(p);
  const double nll_weight = d.given ? 1.0 - d.alpha : 1.0;
  for (std::int64_t row = 0; row < p.b; ++row) {
    double* z = gradients.dz.data() + row * p.v;
    if (!counts(p, row)) {
      for (std::int64_t j = 0; j < p.v; ++j) z[j] = 0.0;
      continue;
    }
    for (std::int64_t j = 0; j < p.v; ++j) logits[index(j)] = final_logit(p.options, z[j]);
    const std::size_t i = index(row);
    Statistics s = statistics_of(logits.data(), p.v);
    const bool own = p.max.empty() || is_own(s.max, p.max[i]);
    if (!p.max.empty()) s = {own ? base_of(s.max, p.max[i]) : p.max[i], p.sum[i]};

    double dloss = 1.0;
    if (!p.dloss.empty()) dloss = p.dloss[p.options.reduction == Reduction::none ? i : 0];
    if (p.options.reduction == Reduction::mean) {
      dloss = denominator == 0.0 ? 0.0 : dloss / denominator;
    }
    const double dlse = p.dlse.empty() ? 0.0 : p.dlse[i];
    const double from_loss = weight_of(p, row) * dloss;
    const double a = (1.0 - eps) * class_weight_of_target(p, row) + eps / v_total * class_total;
    const std::vector<double> hits = hits_of(p, row);
    RowDivergence divergence;
    if (d.given) {
      const auto& saved = p.divergence_statistics;
      divergence = divergence_of(d, logits.data(), teacher.data() + row * p.v, p.v,
                                 saved.empty() ? nullptr : saved.data() + 5 * i);
    }
    const double two_lambda_lse = 2.0 * p.options.logsumexp_weight * s.lse();
    for (std::int64_t j = 0; j < p.v; ++j) {
      const std::int64_t column = p.options.vocab_offset + j;
      const double logit = logits[index(j)];
      const double probability = s.probability(own ? logit : std::min(logit, s.max));
      double g = a * probability - eps * class_weight_of(p, column) / v_total - hits[index(j)];
      g = term(nll_weight, g) + two_lambda_lse * probability;
      g = from_loss * g + dlse * probability;
      // alpha T^2 times the slope by logit / T. A factor of 0 drops an infinite divergence.
      if (d.given) g += term(from_loss * d.alpha * d.temperature, divergence.slope[index(j)]);
      z[j] = g * final_logit_slope(p.options, z[j]);
    }
  }

  const ConstMatrixMap dz(gradients.dz.data(), p.b, p.v);
  if (p.from_logits()) {
    gradients.grad_logits = gradients.dz;
    for (std::int64_t row = 0; row < p.b; ++row) {
      if (!is_bad(p, row)) continue;
      for (std::int64_t j = 0; j < p.v; ++j)
        gradients.grad_logits[index(row * p.v + j)] = nan_value;
    }
    return gradients;
  }
  gradients.grad_x.assign(index(p.b * p.h), 0.0);
  gradients.grad_w.assign(index(p.h * p.v), 0.0);
  gradients.grad_bias.assign(index(p.v), 0.0);
  MatrixMap grad_x(gradients.grad_x.data(), p.b, p.h);
  if (p.h > 0 && p.b > 0 && p.v > 0) {
    grad_x = dz * ConstMatrixMap(p.w.data(), p.h, p.v).transpose();
    MatrixMap(gradients.grad_w.data(), p.h, p.v) =
        rows_of_x(p, [&](std::int64_t row) { return counts(p, row); }).transpose() * dz;
  }
  for (std::int64_t row = 0; row < p.b; ++row) {
    // Set, not computed: 0 * w is NaN where w is not finite.
    if (is_ignored(p, row)) grad_x.row(row).setZero();
    if (is_bad(p, row)) grad_x.row(row).setConstant(nan_value);
    for (std::int64_t j = 0; j < p.v; ++j) gradients.grad_bias[index(j)] += dz(row, j);
  }
  return gradients;
}

}  // namespace tessera::oracle
