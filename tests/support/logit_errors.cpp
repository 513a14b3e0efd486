// SPDX-License-Identifier: Apache-2.0
#include "tests/support/logit_errors.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::test {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

std::vector<double> norms(const std::vector<double>& a, std::int64_t rows, std::int64_t columns,
                          bool of_columns) {
  std::vector<double> squares(index(of_columns ? columns : rows), 0.0);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      const double value = a[index(i * columns + j)];
      if (std::isfinite(value)) squares[index(of_columns ? j : i)] += value * value;
    }
  }
  for (auto& value : squares) value = std::sqrt(value);
  return squares;
}

bool has_equal_rows(const oracle::Problem& p) {
  const auto first = p.x.begin();
  for (std::int64_t row = 1; row < p.b; ++row) {
    if (!std::equal(first, first + p.h, first + row * p.h)) return false;
  }
  return p.b > 1;
}

double slope_of(const LossOptions& options, double logit) {
  const double cap = options.logit_soft_cap;
  const double t = cap == 0.0 ? 0.0 : logit / cap;
  return std::abs(options.logit_scale) * (1.0 - t * t);
}

std::vector<double> logit_errors(const oracle::Problem& p, const std::vector<double>& logits) {
  std::vector<double> errors(logits.size(), 0.0);
  const bool dot = !p.from_logits();
  const std::vector<double> x = dot ? norms(p.x, p.b, p.h, false) : std::vector<double>();
  const std::vector<double> w = dot ? norms(p.w, p.h, p.v, true) : std::vector<double>();
  for (std::int64_t row = 0; row < p.b; ++row) {
    for (std::int64_t j = 0; j < p.v; ++j) {
      const double logit = logits[index(row * p.v + j)];
      if (!std::isfinite(logit)) continue;
      double z = 0.0;
      // An infinite bias is exact, and under a cap the logit is finite.
      if (dot && (p.bias.empty() || std::isfinite(p.bias[index(j)]))) {
        const double bias = p.bias.empty() ? 0.0 : std::abs(p.bias[index(j)]);
        z = lambda * root(p.h + 2) * u * (x[index(row)] * w[index(j)] + bias);
        z +=
            0x1p-126 * (root(p.h) * (x[index(row)] + w[index(j)]) + 2.0 * static_cast<double>(p.h));
      }
      errors[index(row * p.v + j)] = z * slope_of(p.options, logit) + 4.0 * u * std::abs(logit) +
                                     2.0 * u * p.options.logit_soft_cap;
    }
  }
  return errors;
}

}  // namespace tessera::test
