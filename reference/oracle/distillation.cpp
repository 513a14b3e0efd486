// SPDX-License-Identifier: Apache-2.0
// How far a student's distribution is from its teacher's.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/oracle/oracle.hpp"
#include "reference/oracle/require.hpp"

namespace tessera::oracle {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// A distribution and its logarithms, and what it was normalised by.
struct Distribution {
  std::vector<double> p, log_p;
  std::vector<double> far;  ///< logits over the temperature, relative to `max`
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0.0;
};

/// softmax(logits / temperature). `saved`: the maximum and the sum over more columns than these;
/// nullptr: these are all.
Distribution softmax(const double* logits, std::int64_t v, double temperature,
                     const double* saved) {
  Distribution d;
  for (std::int64_t j = 0; j < v; ++j) {
    // A NaN fails the comparison and is taken; a NaN maximum is kept.
    const double value = logits[j] / temperature;
    if (!std::isnan(d.max) && !(d.max >= value)) d.max = value;
  }
  const double held = saved != nullptr ? saved[0] : static_cast<double>(static_cast<float>(d.max));
  const bool own = is_own(d.max, held);
  d.max = own ? base_of(d.max, held) : held;
  const double infinity = std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < v; ++j) {
    // -Inf of nothing but -Inf: these columns have no distribution, others may have one.
    const double far = logits[j] == -infinity ? -infinity : logits[j] / temperature - d.max;
    d.far.push_back(own ? far : std::min(far, 0.0));
    d.sum += std::exp(d.far.back());
  }
  if (saved != nullptr) d.sum = saved[1];
  for (const double value : d.far) {
    d.log_p.push_back(value - std::log(d.sum));
    d.p.push_back(std::exp(d.log_p.back()));
  }
  return d;
}

/// The fields of DivergenceSums from what they are relative to.
std::array<double, 6> sums_of(const Distillation& d, const Distribution& q, const Distribution& p) {
  const bool reverse = d.effective() == Divergence::reverse_kl;
  std::array<double, 6> sums = {q.max, p.max, q.sum, p.sum, 0.0, 0.0};
  for (std::size_t j = 0; j < p.p.size(); ++j) {
    const double u = q.far[j], v = p.far[j];
    const double e_u = std::exp(u), e_v = std::exp(v);
    if (e_v != 0.0) sums[5] += e_v * v;
    if (reverse && e_u != 0.0) sums[4] += e_u * (u - v);
    if (!reverse && e_v != 0.0) sums[4] += e_v * (v - u);
  }
  return sums;
}

/// sum of p log(p / q); a word of p = 0 adds nothing.
double kl(const Distribution& p, const Distribution& q) {
  double sum = 0.0;
  for (std::size_t j = 0; j < p.p.size(); ++j) {
    if (p.p[j] != 0.0) sum += p.p[j] * (p.log_p[j] - q.log_p[j]);
  }
  return sum;
}

/// log(exp(a) + exp(b)).
double log_add_exp(double a, double b) {
  const double larger = std::max(a, b);
  return std::isinf(larger) ? larger : larger + std::log1p(std::exp(std::min(a, b) - larger));
}

/// The logarithms of beta p + (1 - beta) q, from logarithms: probabilities of rows that are sure of
/// a word are below the smallest number elsewhere, and their logarithms are not.
Distribution mixture(const Distribution& p, const Distribution& q, double beta) {
  Distribution m;
  for (std::size_t j = 0; j < p.p.size(); ++j) {
    m.log_p.push_back(log_add_exp(p.log_p[j] + std::log(beta), q.log_p[j] + std::log1p(-beta)));
  }
  return m;
}

}  // namespace

RowDivergence divergence_of(const Distillation& d, const double* student, const double* teacher,
                            std::int64_t v, const double* saved) {
  const Distribution q = softmax(student, v, d.temperature, saved);
  const Distribution p = softmax(teacher, v, d.temperature, saved != nullptr ? saved + 2 : nullptr);
  RowDivergence result;
  result.sums = sums_of(d, q, p);
  for (std::size_t j = 0; j < p.p.size(); ++j) {
    if (p.p[j] != 0.0) result.target_entropy -= p.p[j] * p.log_p[j];
  }
  if (d.effective() == Divergence::forward_kl) {
    result.value = kl(p, q);
    result.statistics = {q.max, q.sum, p.max, p.sum, result.value};
    for (std::size_t j = 0; j < p.p.size(); ++j) result.slope.push_back(q.p[j] - p.p[j]);
    return result;
  }
  // The slope of KL(q||r) by u where r stays as it is: q (log(q / r) - KL(q||r)); a word of q = 0
  // has none.
  const bool reverse = d.effective() == Divergence::reverse_kl;
  const Distribution m = reverse ? p : mixture(p, q, d.beta);  // its logarithms alone are read
  const double share = reverse ? 1.0 : 1.0 - d.beta;
  const double from_q = saved != nullptr ? saved[4] : kl(q, m);
  result.statistics = {q.max, q.sum, p.max, p.sum, from_q};
  result.value = reverse ? from_q : d.beta * kl(p, m) + share * from_q;
  for (std::size_t j = 0; j < q.p.size(); ++j) {
    result.slope.push_back(q.p[j] == 0.0 ? 0.0
                                         : share * q.p[j] * ((q.log_p[j] - m.log_p[j]) - from_q));
  }
  return result;
}

void keep(const RowDivergence& d, const Problem& p, std::int64_t row, Values& values) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (values.divergence.empty()) {
    // Of an ignored row, which has seen no column.
    values.divergence.assign(index(p.b), 0.0);
    values.target_entropy.assign(index(p.b), 0.0);
    for (std::int64_t i = 0; i < p.b; ++i) {
      const double none[] = {-infinity, 0.0, -infinity, 0.0, 0.0};
      values.divergence_statistics.insert(values.divergence_statistics.end(), none, none + 5);
      const double no_sums[] = {-infinity, -infinity, 0.0, 0.0, 0.0, 0.0};
      values.divergence_sums.insert(values.divergence_sums.end(), no_sums, no_sums + 6);
    }
  }
  if (is_ignored(p, row)) return;
  values.divergence[index(row)] = d.value;
  values.target_entropy[index(row)] = d.target_entropy;
  for (std::size_t i = 0; i < 5; ++i) {
    values.divergence_statistics[5 * index(row) + i] = d.statistics[i];
  }
  for (std::size_t i = 0; i < 6; ++i) values.divergence_sums[6 * index(row) + i] = d.sums[i];
}

std::vector<double> teacher_logits(const Problem& p) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Distillation& d = p.distillation;
  if (!d.given) return {};
  std::vector<double> z(index(p.b * p.v), 0.0);
  if (!p.teacher_logits.empty()) {
    require_size(p.teacher_logits.size(), p.b * p.v, "teacher_logits");
    z = p.teacher_logits;
  } else {
    require_size(p.teacher_x.size(), p.b * p.teacher_h, "teacher_x");
    require_size(p.teacher_w.size(), p.teacher_h * p.v, "teacher_w");
    if (!p.teacher_bias.empty()) {
      require_size(p.teacher_bias.size(), p.v, "teacher_bias");
    }
    Matrix x = Matrix::Zero(p.b, p.teacher_h);  // ignored rows are not read
    for (std::int64_t row = 0; row < p.b; ++row) {
      for (std::int64_t i = 0; i < p.teacher_h && !is_ignored(p, row); ++i) {
        x(row, i) = p.teacher_x[index(row * p.teacher_h + i)];
      }
    }
    Eigen::Map<Matrix> product(z.data(), p.b, p.v);
    if (p.teacher_h > 0)
      product = x * Eigen::Map<const Matrix>(p.teacher_w.data(), p.teacher_h, p.v);
    for (std::int64_t i = 0; i < p.b * p.v && !p.teacher_bias.empty(); ++i) {
      z[index(i)] += p.teacher_bias[index(i % p.v)];
    }
  }
  for (std::int64_t i = 0; i < p.b * p.v; ++i) {
    double& value = z[index(i)];
    value *= d.logit_scale;
    if (d.logit_soft_cap != 0.0) {
      value = d.logit_soft_cap * std::tanh(value / d.logit_soft_cap);
    }
    if (is_ignored(p, i / p.v)) value = 0.0;
  }
  return z;
}

}  // namespace tessera::oracle
