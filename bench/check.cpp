// SPDX-License-Identifier: Apache-2.0
#include "bench/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/judge.hpp"
#include "bench/sweeps.hpp"

namespace tessera::bench {

void Deviation::add(double off) {
  const double size = std::abs(off);
  max_abs = std::isnan(size) ? size : std::max(max_abs, size);
  sum_abs += size;
  ++count;
}

void Deviation::hold(const std::string& what, double off, double tolerance) {
  const double size = std::abs(off);
  const double ratio = std::isnan(size) ? std::numeric_limits<double>::infinity()
                                        : size / std::max(tolerance, 1e-300);
  if (ratio > worst) {
    worst = ratio;
    where = fmt::format("{}: off by {:.3g}, tolerance {:.3g}", what, size, tolerance);
  }
}

FilterError compare_gradients(const HostTensor& filtered, const HostTensor& exact) {
  FilterError error;
  double difference = 0.0, whole = 0.0;
  for (std::int64_t i = 0; i < filtered.size(); ++i) {
    const double is = element(exact, i);
    const double off = element(filtered, i) - is;
    error.max = std::max(error.max, std::abs(off));
    difference += off * off;
    whole += is * is;
  }
  error.norm = difference == 0.0 ? 0.0 : std::sqrt(difference / whole);
  return error;
}

Deviation judge_products(const Data& data, const float* logits) {
  const auto [b, h, v] = data.key.layer();
  const HostTensor& x = data.arrays["x"];
  const HostTensor& w = data.arrays["w"];
  const auto rows = sample(b, sampled_rows, 0);
  const auto wanted = products(x, w, rows);
  const auto x_norms = row_norms(x), w_norms = column_norms(w);
  Deviation d;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::int64_t j = 0; j < v; ++j) {
      const double off = static_cast<double>(logits[rows[i] * v + j]) - wanted[i * at(v) + at(j)];
      d.add(off);
      d.hold(fmt::format("logits, row {} column {}", rows[i], j), off,
             4.0 * root(h + 2) * unit_roundoff * x_norms[at(rows[i])] * w_norms[at(j)]);
    }
  }
  return d;
}

}  // namespace tessera::bench
