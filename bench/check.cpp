// SPDX-License-Identifier: Apache-2.0
#include "bench/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "bench/sweeps.hpp"
#include "reference/oracle/oracle.hpp"

// Tolerances. u = 2^-24. A logit is a dot product of H terms in f32: 4 sqrt(H + 2) u |x| |w| holds
// for all but about one in a thousand sums (Higham and Mary 2019), plus 4 u |logit| for scaling.
// Sums over V of blocked partial sums: (8 + sqrt(V)) u, and 3 u (max - logit) for the argument of
// exp. Gradients are compared norm-wise, by |w| (d dz + 4 sqrt(V) u |dz|) summed; where x and w are
// both bf16 an engine may round dz to bf16, 2^-8 more. Last, one rounding to the view's type.

namespace tessera::bench {
namespace {

constexpr double u = 0x1p-24;  // unit roundoff of f32
// Few, for a row of the oracle costs 2HV and a column 2BH in double; the rest is checked through
// the sums that these take part in (check.hpp).
constexpr std::int64_t sampled_rows = 4;
constexpr std::int64_t sampled_columns = 8;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
double root(std::int64_t n) { return std::sqrt(static_cast<double>(n)); }
double roundoff(DType type) {
  return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : u;
}

/// The ends, and others spread over [0, n) by the golden ratio; `always` joins them.
std::vector<std::int64_t> sample(std::int64_t n, std::int64_t count, std::int64_t always) {
  std::set<std::int64_t> picked = {0, n - 1, always};
  for (std::int64_t i = 1; i <= count; ++i) {
    const double fraction = std::fmod(0.6180339887498949 * static_cast<double>(i), 1.0);
    if (static_cast<std::int64_t>(picked.size()) < std::min(n, count)) {
      picked.insert(static_cast<std::int64_t>(fraction * static_cast<double>(n)));
    }
  }
  return {picked.begin(), picked.end()};
}

class Judge {
 public:
  Judge(const Data& data, float filter_eps)
      : data_(data), key_(data.key), filter_eps_(static_cast<double>(filter_eps)) {
    const auto [b, h, v] = key_.shape;
    const auto counted = static_cast<std::int64_t>(data.counted.size());
    for (const auto i : sample(counted, sampled_rows, 0)) rows_.push_back(data.counted[at(i)]);
    problem_.b = static_cast<std::int64_t>(rows_.size());
    problem_.v = v;
    problem_.options.reduction = Reduction::none;
    for (const auto r : rows_) problem_.labels.push_back(data.labels[at(r)]);
    // The mean's share of each row.
    problem_.dloss.assign(rows_.size(), 1.0 / static_cast<double>(counted));
    if (linear()) {
      w_norms_ = column_norms(data);
      x_norms_ = row_norms(data);
      problem_.logits = logits_of(data, rows_);
    } else {
      for (const auto r : rows_) {
        for (std::int64_t j = 0; j < v; ++j) {
          problem_.logits.push_back(element(data.logits.data(), key_.x, r * v + j));
        }
      }
    }
    values_ = oracle::forward(problem_);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      errors_.push_back(row_error(i));
      check("the streaming lse", rows_[i], data.lse[at(rows_[i])] - values_.lse[i], errors_[i].lse);
    }
    deviation_.max_abs = 0.0;  // of the results, not of what they are compared with
  }

  void statistics(const HostTensor& tensor) {
    const auto got = tensor.as<float>();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const double max = got[at(2 * rows_[i])], sum = got[at(2 * rows_[i] + 1)];
      check("lse, row", rows_[i], max + std::log(sum) - values_.lse[i], errors_[i].lse);
    }
  }

  void loss(const HostTensor& tensor) {
    double mean = 0.0;
    double tolerance = 0.0;
    for (const auto& error : errors_) tolerance = std::max(tolerance, 2.0 * error.lse);
    // Rows with a longer x than the sampled ones deviate more.
    if (linear()) {
      double sampled = 0.0;
      for (const auto r : rows_) sampled = std::max(sampled, x_norms_[at(r)]);
      tolerance *= std::max(1.0, *std::max_element(x_norms_.begin(), x_norms_.end()) / sampled);
    }
    for (const auto r : data_.counted) {
      mean += data_.lse[at(r)] - logit(data_, r, data_.labels[at(r)]);
    }
    mean /= static_cast<double>(data_.counted.size());
    check("loss", 0, static_cast<double>(tensor.as<float>()[0]) - mean, tolerance);
  }

  void grad_x(const HostTensor& tensor) {
    const std::int64_t h = key_.shape.h;
    const auto dz = oracle::backward(problem_).grad_logits;
    const auto wanted = products_with_w(data_, dz, problem_.b);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      double tolerance = 0.0;
      for (std::int64_t j = 0; j < key_.shape.v; ++j) {
        const auto k = i * at(key_.shape.v) + at(j);
        tolerance += w_norms_[at(j)] * (dz_error(i, problem_.logits[k], dz[k]) +
                                        4.0 * root(key_.shape.v) * u * std::abs(dz[k]));
      }
      compare("grad_x, row", rows_[i], wanted.data() + at(h) * i, h, tolerance, tensor,
              rows_[i] * h, 1);
    }
    if (std::cmp_equal(data_.counted.size(), key_.shape.b)) return;
    std::int64_t ignored = 0;
    while (data_.labels[at(ignored)] >= 0) ++ignored;
    const std::vector<double> zeros(at(h));
    compare("grad_x, ignored row", ignored, zeros.data(), h, 0.0, tensor, ignored * h, 1);
  }

  void grad_logits(const HostTensor& tensor) {
    const auto dz = oracle::backward(problem_).grad_logits;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      for (std::int64_t j = 0; j < key_.shape.v; ++j) {
        const auto k = i * at(key_.shape.v) + at(j);
        const double tolerance = dz_error(i, problem_.logits[k], dz[k]) +
                                 roundoff(tensor.dtype()) * std::abs(dz[k]) + smallest(tensor);
        check("grad_logits, row", rows_[i],
              element(tensor.data(), tensor.dtype(), rows_[i] * key_.shape.v + j) - dz[k],
              tolerance);
      }
    }
  }

  void grad_w(const HostTensor& tensor) {
    const auto [b, h, v] = key_.shape;
    // One column is a shard of the vocabulary, whose merged statistics are known.
    oracle::Problem p;
    p.b = b, p.h = h, p.v = 1;
    p.options.vocab_size_total = v;
    for (std::int64_t i = 0; i < b * h; ++i) p.x.push_back(element(data_.x.data(), key_.x, i));
    p.labels.assign(data_.labels.begin(), data_.labels.end());
    p.max = data_.lse;
    p.sum.assign(at(b), 1.0);
    p.w.resize(at(h));
    const Dims strides = w_strides(key_);
    const auto first_label = data_.labels[at(data_.counted.front())];
    for (const auto column : sample(v, sampled_columns, first_label)) {
      p.options.vocab_offset = column;
      for (std::int64_t i = 0; i < h; ++i) {
        p.w[at(i)] = element(data_.w.data(), key_.w, i * strides[0] + column * strides[1]);
      }
      const auto wanted = oracle::backward(p);
      double tolerance = 0.0;
      for (const auto r : data_.counted) {
        const double dz = wanted.dz[at(r)];
        const double e = logit_error(x_norms_[at(r)], w_norms_[at(column)]);
        const double share = 1.0 / static_cast<double>(data_.counted.size());
        const double probability = dz + (data_.labels[at(r)] == column ? share : 0.0);
        tolerance += x_norms_[at(r)] *
                     (probability * (e + largest_lse_error()) + share * filter_eps_ +
                      std::abs(dz) * (dz_rounding() + (16.0 + 4.0 * root(b)) * u) + dz_floor());
      }
      compare("grad_w, column", column, wanted.grad_w.data(), h, tolerance, tensor,
              column * strides[1], strides[0]);
    }
  }

  Deviation finish() { return deviation_; }

 private:
  struct RowError {
    double logit = 0.0;  ///< the largest of the row
    double lse = 0.0;
  };

  bool linear() const { return key_.op == Operator::linear_cross_entropy; }
  double logit_error(double x_norm, double w_norm) const {
    return 4.0 * root(key_.shape.h + 2) * u * x_norm * w_norm;
  }
  double dz_rounding() const {
    return key_.x == DType::bf16 && key_.w == DType::bf16 ? 0x1p-8 : 0.0;
  }
  /// bf16 denormals may read as 0.
  double dz_floor() const { return dz_rounding() > 0.0 ? 0x1p-126 : 0.0; }
  double smallest(const HostTensor& t) const {
    return t.dtype() == DType::f16 ? 0x1p-25 : 0x1p-126;
  }
  double largest_lse_error() const {
    double largest = 0.0;
    for (const auto& error : errors_) largest = std::max(largest, error.lse);
    return largest;
  }

  RowError row_error(std::size_t i) const {
    RowError error;
    double far = 0.0;
    for (std::int64_t j = 0; j < key_.shape.v; ++j) {
      const double z = problem_.logits[i * at(key_.shape.v) + at(j)];
      const double own = 4.0 * u * std::abs(z) +
                         (linear() ? logit_error(x_norms_[at(rows_[i])], w_norms_[at(j)]) : 0.0);
      error.logit = std::max(error.logit, own);
      far += std::exp(z - values_.lse[i]) * (values_.max[i] - z);
    }
    error.lse = 2.0 * error.logit + (8.0 + root(key_.shape.v)) * u + 3.0 * u * far +
                2.0 * u * (std::abs(values_.lse[i]) + std::abs(values_.max[i]));
    return error;
  }

  double dz_error(std::size_t i, double z, double dz) const {
    const double relative =
        errors_[i].logit + errors_[i].lse + 3.0 * u * (values_.max[i] - z) + 16.0 * u;
    const double p = std::exp(z - values_.lse[i]);
    return problem_.dloss[i] * (p * relative + filter_eps_) +
           std::abs(dz) * (16.0 * u + dz_rounding()) + dz_floor();
  }

  void check(const char* what, std::int64_t index, double deviation, double tolerance) {
    const double size = std::abs(deviation);
    // A NaN is no deviation that any tolerance allows.
    const double ratio = std::isnan(size) ? std::numeric_limits<double>::infinity()
                                          : size / std::max(tolerance, 1e-300);
    deviation_.max_abs = std::isnan(size) ? size : std::max(deviation_.max_abs, size);
    if (ratio > deviation_.worst) {
      deviation_.worst = ratio;
      deviation_.where =
          fmt::format("{} {}: off by {:.3g}, tolerance {:.3g}", what, index, size, tolerance);
    }
  }

  void compare(const char* what, std::int64_t index, const double* wanted, std::int64_t count,
               double tolerance, const HostTensor& tensor, std::int64_t offset,
               std::int64_t stride) {
    double norm = 0.0, off = 0.0, largest = 0.0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double got = element(tensor.data(), tensor.dtype(), offset + i * stride);
      const double d = got - wanted[i];
      norm += wanted[i] * wanted[i];
      off += d * d;
      largest = std::max(largest, std::abs(d));
    }
    const double allowed = tolerance + roundoff(tensor.dtype()) * (std::sqrt(norm) + tolerance) +
                           root(count) * smallest(tensor);
    const double before = deviation_.max_abs;
    check(what, index, std::sqrt(off), allowed);
    if (!std::isnan(off)) deviation_.max_abs = std::max(before, largest);  // pointwise
  }

  const Data& data_;
  const ProblemKey& key_;
  double filter_eps_;
  std::vector<std::int64_t> rows_{};
  std::vector<double> x_norms_{}, w_norms_{};
  oracle::Problem problem_{};
  oracle::Values values_{};
  std::vector<RowError> errors_{};
  Deviation deviation_{};
};

}  // namespace

Deviation judge(const Data& data, const Outcome& outcome, float filter_eps) {
  Judge j(data, filter_eps);
  if (outcome.statistics) j.statistics(outcome.statistics);
  if (outcome.loss) j.loss(outcome.loss);
  if (outcome.grad_x) j.grad_x(outcome.grad_x);
  if (outcome.grad_w) j.grad_w(outcome.grad_w);
  if (outcome.grad_logits) j.grad_logits(outcome.grad_logits);
  return j.finish();
}

FilterError compare_gradients(const Outcome& filtered, const Outcome& exact) {
  const auto compare = [](const HostTensor& a, const HostTensor& b, double& largest, double& norm) {
    double difference = 0.0, whole = 0.0;
    for (std::int64_t i = 0; i < a.size(); ++i) {
      const double is = element(b.data(), b.dtype(), i);
      const double off = element(a.data(), a.dtype(), i) - is;
      largest = std::max(largest, std::abs(off));
      difference += off * off;
      whole += is * is;
    }
    norm = difference == 0.0 ? 0.0 : std::sqrt(difference / whole);
  };
  FilterError error;
  compare(filtered.grad_x, exact.grad_x, error.grad_x_max, error.grad_x_norm);
  compare(filtered.grad_w, exact.grad_w, error.grad_w_max, error.grad_w_norm);
  return error;
}

Deviation judge_products(const Data& data, const float* logits) {
  const auto [b, h, v] = data.key.shape;
  const auto rows = sample(b, sampled_rows, 0);
  const auto wanted = logits_of(data, rows);
  const auto x = row_norms(data), w = column_norms(data);
  Deviation d;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::int64_t j = 0; j < v; ++j) {
      const double off =
          std::abs(static_cast<double>(logits[rows[i] * v + j]) - wanted[i * at(v) + at(j)]);
      const double ratio = off / (4.0 * root(h + 2) * u * x[at(rows[i])] * w[at(j)] + 1e-300);
      d.max_abs = std::max(d.max_abs, off);
      if (!(ratio <= d.worst)) {
        d.worst = ratio;
        d.where = fmt::format("logits, row {} column {}: off by {:.3g}", rows[i], j, off);
      }
    }
  }
  return d;
}

}  // namespace tessera::bench
