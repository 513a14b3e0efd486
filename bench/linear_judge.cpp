// SPDX-License-Identifier: Apache-2.0
#include "bench/linear_judge.hpp"

#include <utility>

#include "bench/sweeps.hpp"

namespace tessera::bench {

Factors::Factors(const HostTensor& of_rows, const HostTensor& of_words)
    : x(of_rows), w(of_words), x_norms(row_norms(x)), w_norms(column_norms(w)) {}

double Factors::error(std::int64_t row, std::int64_t column) const {
  return 4.0 * root(x.extents()[1] + 2) * unit_roundoff * x_norms[at(row)] * w_norms[at(column)];
}

Logits logits_of(const Factors& factors) {
  return {.of_rows = [&](const auto& rows) { return products(factors.x, factors.w, rows); },
          .one = [&](auto row, auto column) { return product(factors.x, factors.w, row, column); },
          .error = [&](auto row, auto column) { return factors.error(row, column); },
          .row_norms = factors.x_norms};
}

void judge_grad_x(LossJudge& judge, const Factors& factors, const std::vector<double>& dz,
                  const HostTensor& grad_x, const MoreDzError& more) {
  const auto [b, h, v] = judge.data().key.layer();
  const auto& problem = judge.problem();
  const auto wanted = products_with_w(factors.w, dz, problem.b);
  for (std::size_t i = 0; i < judge.rows().size(); ++i) {
    double tolerance = 0.0;
    for (std::int64_t j = 0; j < v; ++j) {
      const auto k = i * at(v) + at(j);
      tolerance += factors.w_norms[at(j)] *
                   (judge.dz_error(i, problem.logits[k], dz[k]) + (more ? more(i, j) : 0.0) +
                    4.0 * root(v) * unit_roundoff * std::abs(dz[k]));
    }
    const auto row = judge.rows()[i];
    judge.compare("grad_x, row", row, wanted.data() + at(h) * i, h, tolerance, grad_x, row * h, 1);
  }
  if (std::cmp_equal(judge.data().counted.size(), b)) return;
  std::int64_t ignored = 0;
  while (judge.data().labels[at(ignored)] >= 0) ++ignored;
  const std::vector<double> zeros(at(h));
  judge.compare("grad_x, ignored row", ignored, zeros.data(), h, 0.0, grad_x, ignored * h, 1);
}

}  // namespace tessera::bench
