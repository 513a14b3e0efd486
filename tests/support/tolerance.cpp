// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tests/support/divergence_tolerance.hpp"
#include "tests/support/logit_errors.hpp"

// Where the tolerances come from. u = 2^-24 is the unit roundoff of f32.
//
// Inputs. 16-bit inputs are exact inputs: the oracle reads the same numbers. So only f32
// accumulation, the elementary functions and the last rounding count.
//
// Logits. A dot product of n terms, f32 in any order, deviates by at most gamma_n |x|.|w| with
// gamma_n = n u; for rounding errors without a common sign sqrt(n) takes the place of n (Higham and
// Mary, SIAM J. Sci. Comput. 41(5), 2019, with lambda = 4 failing in about one of 1e3 sums of worst
// sign). So  e_bv = 4 sqrt(H + 2) u (|x_b| |w_v| + |bias_v|) |slope| + 4 u |logit| + 2 u cap,
// where slope = d logit / dz, and the last two terms pay for scale, tanh (5 ulp) and log2(e).
// Denormals of bf16 may read as 0, and products and sums below 2^-126 become 0 where bf16 is
// multiplied by pairs: 2^-126 (sqrt(H) (|x_b| + |w_v|) + 2 H) |slope| more.
//
// Sums over v. exp2 to 4 ulp and blocked partial sums: relative  s = (8 + sum_terms(V)) u  plus the
// rounding of the argument, 3 u (max - logit) in proportion to p. All this stays first order:
//   lse            sum_v p_v e_v + s + 2 u (|lse| + |max|)
//   lse - logit_y  sum_{v != y} p_v e_v + (1 - p_y) e_y + s + 4 u (max - logit_y): no |lse| term,
//                  since it is formed relative to the maximum
//   entropy        d entropy / d logit_v = -p_v (log p_v + entropy)
//   z              |weight lambda| 2 |lse| times the deviation of lse
//
// Backward. p_v deviates, relatively, by e_v + sum p e + s + 3 u (max - logit_v); from a saved lse
// by 2 u |lse| more, since that rounding does not cancel. dz follows by the product rule, with
// 8 u for each of its terms. An OpenCL engine may round dz to bf16 where x and w are both bf16:
// 2^-8 |dz| more (bf16 has 8 bits). Where they are f16 it may round dz to f16, 2^-11 |dz|, times a
// power of two that brings the largest that a dz of the call can be to 2^13 at least: what is small
// is 2^-25 of that off, 2^-38 of the largest. A gradient is a sum over v or b: norm-wise, since a
// single element is dominated by cancellation,
//   |d grad_x_b| <= sum_v |w_v| (d dz_bv + 4 sqrt(V) u |dz_bv|)
//   |d grad_w_v| <= sum_b |x_b| (d dz_bv + 4 sqrt(B) u |dz_bv|)
// and one rounding to the view's type.
//
// Gradient filtering leaves out of both sums what has |dz_bv| <= eps |scale q_b|, where q_b is the
// factor of p_bv in dz_bv; it never leaves out more, so every element's d dz_bv grows by that.

namespace tessera::test {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

bool counts(const oracle::Problem& p, std::int64_t row) {
  return !oracle::is_ignored(p, row) && !oracle::is_bad(p, row);
}

double weight_of(const oracle::Problem& p, std::int64_t row) {
  return p.weight.empty() ? 1.0 : p.weight[index(row)];
}

double class_weight_of(const oracle::Problem& p, std::int64_t column) {
  return p.class_weight.empty() ? 1.0 : p.class_weight[index(column)];
}

/// The nll's share of a row's loss.
double nll_weight_of(const oracle::Problem& p) {
  return p.distillation.given ? 1.0 - p.distillation.alpha : 1.0;
}

double denominator_of(const oracle::Problem& p) {
  double sum = 0.0;
  for (std::int64_t row = 0; row < p.b; ++row) {
    if (counts(p, row)) sum += weight_of(p, row) * oracle::share_of(p, row);
  }
  return sum;
}

/// What a row's softmax looks like and how far it may be off.
struct SoftmaxRow {
  bool finite = false;
  double max = 0, sum = 0, lse = 0;
  double mean_error = 0;  ///< sum_v p_v e_v
  double sum_error = 0;   ///< s, relative
  double lse_error = 0;
  double p(double logit) const { return std::isinf(logit) ? 0.0 : std::exp(logit - max) / sum; }
};

SoftmaxRow row_of(const oracle::Problem& p, const oracle::Values& values, const double* errors,
                  std::int64_t row) {
  SoftmaxRow r;
  r.max = values.max[index(row)];
  r.sum = values.sum[index(row)];
  r.lse = values.lse[index(row)];
  r.finite = !oracle::is_ignored(p, row) && std::isfinite(r.lse);
  if (!r.finite) return r;
  r.sum_error = (8.0 + sum_terms(p.v)) * u;
  const double* logits = values.logits.data() + row * p.v;
  for (std::int64_t j = 0; j < p.v; ++j) {
    const double probability = r.p(logits[j]);
    if (probability == 0.0) continue;
    r.mean_error += probability * errors[j];
    r.sum_error += 3.0 * u * probability * (r.max - logits[j]);
  }
  r.lse_error = r.mean_error + r.sum_error + 2.0 * u * (std::abs(r.lse) + std::abs(r.max));
  return r;
}

/// Of lse - logit_j; infinite logits are compared by class.
double distance_error(const SoftmaxRow& r, double logit, double error) {
  if (std::isinf(logit)) return 0.0;
  const double probability = r.p(logit);
  return std::max(0.0, r.mean_error - probability * error) + (1.0 - probability) * error +
         r.sum_error + 4.0 * u * ((r.max - logit) + std::abs(std::log(r.sum)));
}

/// Of every row that is read: a teacher has a distribution where the student has none.
void add_divergences(ValueTolerance& t, const oracle::Problem& p, const oracle::Values& values) {
  for (auto* field :
       {&t.divergence, &t.target_entropy, &t.student_lse, &t.teacher_lse, &t.relative}) {
    field->assign(values.divergence.size(), 0.0);
  }
  const DivergenceErrors divergences(p, values.logits, t.logit);
  for (std::int64_t row = 0; p.distillation.given && row < p.b; ++row) {
    if (oracle::is_ignored(p, row)) continue;
    const auto d = divergences.of_row(row);
    t.divergence[index(row)] = d.value;
    t.target_entropy[index(row)] = d.target_entropy;
    t.student_lse[index(row)] = d.student_lse;
    t.teacher_lse[index(row)] = d.teacher_lse;
    t.relative[index(row)] = d.relative;
  }
}

/// What a teacher makes of a row's `nll`, as far as that may be off, and of its `size`.
void add_divergence(double& nll, double& size, const oracle::Distillation& d, double error,
                    double value) {
  const double share = d.alpha * d.temperature * d.temperature;
  const double distance = std::isfinite(value) ? value : 0.0;
  nll = (1.0 - d.alpha) * nll + share * (error + 4.0 * u * distance);
  size = (1.0 - d.alpha) * size + share * distance;
}

}  // namespace

double unit_roundoff(DType type) {
  return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : u;
}

double smallest_step(DType type) {
  // bf16 denormals may be flushed, so its smallest normal number; half of f16's denormal spacing.
  return type == DType::f16 ? 0x1p-25 : 0x1p-126;
}

ValueTolerance value_tolerance(const oracle::Problem& p, const oracle::Values& values) {
  ValueTolerance t;
  t.logit = logit_errors(p, values.logits);
  add_divergences(t, p, values);
  for (auto* field : {&t.lse, &t.label_logprob, &t.entropy, &t.z_loss, &t.max}) {
    field->assign(index(p.b), 0.0);
  }
  std::vector<double> row_tolerance(index(p.b), 0.0);
  double magnitude = 0.0;
  const double eps = p.options.label_smoothing;
  for (std::int64_t row = 0; row < p.b; ++row) {
    const std::size_t i = index(row);
    const double* logits = values.logits.data() + row * p.v;
    const double* errors = t.logit.data() + row * p.v;
    const SoftmaxRow r = row_of(p, values, errors, row);
    if (!r.finite) continue;
    t.max[i] = *std::max_element(errors, errors + p.v) + u * std::abs(r.max);
    t.lse[i] = r.lse_error;
    const double z_scale = std::abs(weight_of(p, row) * p.options.logsumexp_weight);
    t.z_loss[i] = z_scale * (2.0 * std::abs(r.lse) * r.lse_error + 4.0 * u * r.lse * r.lse);
    if (!values.entropy.empty()) {
      const double entropy = values.entropy[i];
      t.entropy[i] = r.sum_error * (1.0 + std::abs(std::log(r.sum)) + std::abs(entropy)) +
                     8.0 * u * (std::abs(std::log(r.sum)) + std::abs(entropy));
      for (std::int64_t j = 0; j < p.v; ++j) {
        const double probability = r.p(logits[j]);
        if (probability == 0.0) continue;
        t.entropy[i] += probability * std::abs(std::log(probability) + entropy) * errors[j];
      }
    }
    if (!counts(p, row) || !p.whole()) continue;
    const auto target = oracle::target_of(p, row);
    double nll = 0.0;
    double size = 0.0;
    for (const auto& [column, q] : target) {
      if (q == 0.0) continue;
      double to_word = distance_error(r, logits[column], errors[column]);
      // A sum of several terms, which a label is not.
      const double far = std::isinf(logits[column]) ? 0.0 : std::abs(r.lse - logits[column]);
      if (target.size() > 1) {
        to_word += (4.0 + root(static_cast<std::int64_t>(target.size()))) * u * far;
      }
      const double factor = std::abs((1.0 - eps) * q * class_weight_of(p, column));
      t.label_logprob[i] += q * to_word;
      nll += factor * to_word;
      size += factor * far;
    }
    for (std::int64_t j = 0; eps != 0.0 && j < p.v; ++j) {
      const double c = eps / static_cast<double>(p.v) * class_weight_of(p, j);
      if (c == 0.0) continue;
      const double far = r.lse - logits[j];
      nll += c * (distance_error(r, logits[j], errors[j]) + (4.0 + root(p.v)) * u * far);
      size += c * far;
    }
    nll += 4.0 * u * size;
    if (p.distillation.given) {
      add_divergence(nll, size, p.distillation, t.divergence[i], values.divergence[i]);
    }
    row_tolerance[i] = std::abs(weight_of(p, row)) * nll + t.z_loss[i];
    magnitude += std::abs(weight_of(p, row)) * size + z_scale * r.lse * r.lse;
  }
  if (p.options.reduction == Reduction::none) {
    t.loss = row_tolerance;
    return t;
  }
  double total = (4.0 + root(p.b)) * u * magnitude;
  for (double value : row_tolerance) total += value;
  const double denominator = denominator_of(p);
  if (p.options.reduction == Reduction::mean && denominator != 0.0) {
    total /= std::abs(denominator);
  }
  t.loss = {total};
  return t;
}

namespace {

/// As forward's row, with the statistics that backward reads: on a shard those of the whole.
SoftmaxRow backward_row(const oracle::Problem& p, const oracle::Values& values,
                        const double* errors, std::int64_t row) {
  const std::size_t i = index(row);
  SoftmaxRow r = row_of(p, values, errors, row);
  if (p.max.empty()) return r;
  r.max = p.max[i];
  r.sum = p.sum[i];
  r.lse = r.max + std::log(r.sum);
  r.finite = std::isfinite(r.lse);
  r.mean_error = std::max(r.mean_error, *std::max_element(errors, errors + p.v));
  r.lse_error = r.mean_error + r.sum_error + 2.0 * u * (std::abs(r.lse) + std::abs(r.max));
  return r;
}

/// What the terms of dz are multiplied with in one row, without signs.
struct Cotangents {
  double scale = 0;     ///< of the loss: weight and dloss
  double hits = 0;      ///< (1 - eps) sum q c
  double a = 0;         ///< hits and what smoothing adds
  double z = 0;         ///< 2 logsumexp_weight
  double from_p = 0;    ///< the factor of p_bv in dz_bv
  double relative = 0;  ///< deviation that all p_bv of the row have in common
};

Cotangents cotangents_of(const oracle::Problem& p, std::int64_t row, const SoftmaxRow& r,
                         const Precision& precision, double denominator, double class_total) {
  const std::size_t i = index(row);
  const double eps = p.options.label_smoothing;
  double dloss = 1.0;
  if (!p.dloss.empty()) dloss = p.dloss[p.options.reduction == Reduction::none ? i : 0];
  if (p.options.reduction == Reduction::mean) {
    dloss = denominator == 0.0 ? 0.0 : dloss / denominator;
  }
  Cotangents c;
  c.scale = std::abs(weight_of(p, row) * dloss);
  const double dlse = p.dlse.empty() ? 0.0 : p.dlse[i];
  for (const auto& [column, q] : oracle::target_of(p, row)) {
    c.hits += nll_weight_of(p) * (1.0 - eps) * q * std::abs(class_weight_of(p, column));
  }
  c.a = c.hits + nll_weight_of(p) * eps / static_cast<double>(p.v_total()) * class_total;
  c.z = 2.0 * std::abs(p.options.logsumexp_weight);
  c.from_p = c.scale * (c.a + c.z * std::abs(r.lse)) + std::abs(dlse);
  c.relative =
      r.mean_error + r.sum_error + 8.0 * u + (precision.from_lse ? 2.0 * u * std::abs(r.lse) : 0.0);
  return c;
}

/// What targets and a teacher add to one g = d loss / d logit.
struct OfColumn {
  double hit = 0;         ///< (1 - eps) sum of q c
  double smoothing = 0;   ///< eps c / V
  double divergence = 0;  ///< alpha T |d divergence / du|
  double error = 0;       ///< and how far that may be off
};

/// How far dz of column `j` may be off.
double dz_error(const oracle::Problem& p, const SoftmaxRow& r, const Cotangents& c,
                const OfColumn& own, double logit, double error) {
  const double probability = r.p(logit);
  const bool masked = std::isinf(logit);
  const double far = masked ? 0.0 : r.max - logit;
  const double relative = std::expm1(std::min(40.0, error + c.relative + 3.0 * u * far));
  const double size = c.from_p * probability + c.scale * (own.hit + own.smoothing + own.divergence);
  const double g = c.from_p * probability * relative + c.scale * c.z * r.lse_error * probability +
                   8.0 * u * size + root(p.v_total()) * u * c.scale * c.a * probability +
                   c.scale * own.error;
  double d = g * (masked ? std::abs(p.options.logit_scale) : slope_of(p.options, logit));
  if (p.options.logit_soft_cap != 0.0) {
    const double tanh = std::abs(logit / p.options.logit_soft_cap);
    d += size * std::abs(p.options.logit_scale) *
         (2.0 * tanh * error / p.options.logit_soft_cap + 8.0 * u);
  }
  return d;
}

/// Whether dz is the smoothing's share up to what a sum over the rows loses of it anyhow.
bool is_smoothing(const oracle::Problem& p, const SoftmaxRow& r, const Cotangents& c,
                  const OfColumn& own, double logit) {
  if (own.hit != 0.0 || own.divergence != 0.0) return false;
  return c.from_p * r.p(logit) <= static_cast<double>(p.b) * u * c.scale * own.smoothing;
}

/// What is rounded to the gradients' types is the deviating value, so its tolerance so far is
/// rounded too.
void add_rounding(GradientTolerance& t, const oracle::Problem& p,
                  const oracle::Gradients& gradients, const Precision& precision) {
  const std::vector<double> grad_x = norms(gradients.grad_x, p.b, p.h, false);
  const std::vector<double> grad_w = norms(gradients.grad_w, p.h, p.v, true);
  const auto rounded = [&](double norm, double tolerance, DType type) {
    return tolerance + unit_roundoff(type) * (norm + tolerance) +
           root(p.h + 1) * smallest_step(type);
  };
  for (std::size_t i = 0; i < t.grad_x.size(); ++i) {
    t.grad_x[i] = rounded(grad_x[i], t.grad_x[i], precision.grad_x);
  }
  for (std::size_t j = 0; j < t.grad_w.size(); ++j) {
    t.grad_w[j] = rounded(grad_w[j], t.grad_w[j], precision.grad_w);
    const double bias = gradients.grad_bias[j];
    if (std::isfinite(bias)) {
      t.grad_bias[j] = rounded(std::abs(bias), t.grad_bias[j], precision.grad_bias);
    }
  }
}

}  // namespace

GradientTolerance gradient_tolerance(const oracle::Problem& p, const oracle::Values& values,
                                     const oracle::Gradients& gradients,
                                     const ValueTolerance& value_tolerance,
                                     const Precision& precision) {
  const bool linear = !p.from_logits();
  double class_total = 0.0;
  for (std::int64_t j = 0; j < p.v_total(); ++j) class_total += std::abs(class_weight_of(p, j));
  const double denominator = denominator_of(p);
  const double nll_weight = nll_weight_of(p);
  const DivergenceErrors divergences(p, values.logits, value_tolerance.logit);
  const std::vector<double> x = linear ? norms(p.x, p.b, p.h, false) : std::vector<double>();
  const std::vector<double> w = linear ? norms(p.w, p.h, p.v, true) : std::vector<double>();
  const bool same_rows = linear && has_equal_rows(p);
  double largest_dz = 0.0;
  for (std::int64_t row = 0; precision.dz == DType::f16 && row < p.b; ++row) {
    if (!counts(p, row)) continue;
    const double* errors = value_tolerance.logit.data() + row * p.v;
    const SoftmaxRow r = backward_row(p, values, errors, row);
    if (!r.finite) continue;
    const Cotangents c = cotangents_of(p, row, r, precision, denominator, class_total);
    largest_dz = std::max(largest_dz, (c.from_p + c.scale * c.a) * std::abs(p.options.logit_scale));
  }
  GradientTolerance t;
  t.grad_x.assign(index(p.b), 0.0);
  t.grad_w.assign(index(p.v), 0.0);
  t.grad_bias.assign(index(p.v), 0.0);
  t.grad_logits.assign(index(p.b * p.v), 0.0);

  for (std::int64_t row = 0; row < p.b; ++row) {
    const std::size_t i = index(row);
    if (!counts(p, row)) continue;
    const double* logits = values.logits.data() + row * p.v;
    const double* errors = value_tolerance.logit.data() + row * p.v;
    const SoftmaxRow r = backward_row(p, values, errors, row);
    if (!r.finite) continue;
    const Cotangents c = cotangents_of(p, row, r, precision, denominator, class_total);
    std::vector<OfColumn> own(index(p.v));
    for (std::int64_t j = 0; j < p.v; ++j) {
      own[index(j)].smoothing = p.options.label_smoothing *
                                std::abs(class_weight_of(p, p.options.vocab_offset + j)) /
                                static_cast<double>(p.v_total());
    }
    for (const auto& [column, q] : oracle::target_of(p, row)) {
      const std::int64_t local = column - p.options.vocab_offset;
      if (local < 0 || local >= p.v) continue;
      own[index(local)].hit +=
          nll_weight * (1.0 - p.options.label_smoothing) * q * std::abs(class_weight_of(p, column));
    }
    if (p.distillation.given) {
      const auto d = divergences.of_row(row);
      const double share = p.distillation.alpha * p.distillation.temperature;
      for (std::int64_t j = 0; j < p.v; ++j) {
        own[index(j)].divergence = share * d.slope[index(j)];
        own[index(j)].error = share * d.slope_error[index(j)];
      }
    }
    for (std::int64_t j = 0; j < p.v; ++j) {
      const double dz = std::abs(gradients.dz[index(row * p.v + j)]);
      if (!std::isfinite(dz)) continue;
      double d = dz_error(p, r, c, own[index(j)], logits[j], errors[j]);
      // Probabilities below the normal numbers may be flushed before they are multiplied: its own,
      // and those of a divergence, whose share is at most 16 (alpha T of the tests).
      d +=
          (p.distillation.given ? 0x1p-122 : 0x1p-126) * std::abs(p.options.logit_scale) * c.from_p;
      const bool equal_terms = same_rows || is_smoothing(p, r, c, own[index(j)], logits[j]);
      const double sum = sum_over_rows(p, equal_terms) * u * dz;
      t.grad_bias[index(j)] += d + sum;
      t.grad_logits[index(row * p.v + j)] =
          d + unit_roundoff(precision.grad_x) * (dz + d) + smallest_step(precision.grad_x);
      if (!linear) continue;
      if (precision.dz == DType::bf16)
        d += unit_roundoff(DType::bf16) * dz + smallest_step(DType::bf16);
      if (precision.dz == DType::f16) d += unit_roundoff(DType::f16) * dz + 0x1p-38 * largest_dz;
      d += precision.gradient_filter_eps * std::abs(p.options.logit_scale) * c.from_p;
      t.grad_x[i] += w[index(j)] * (d + lambda * root(p.v) * u * dz);
      t.grad_w[index(j)] += x[i] * (d + sum);
    }
  }
  if (linear) add_rounding(t, p, gradients, precision);
  return t;
}

}  // namespace tessera::test
