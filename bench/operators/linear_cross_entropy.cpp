// SPDX-License-Identifier: Apache-2.0
#include "tessera/linear_cross_entropy.hpp"

#include <cmath>

#include "bench/judge.hpp"
#include "bench/linear_data.hpp"
#include "bench/operator_of.hpp"
#include "bench/sweeps.hpp"

namespace tessera::bench {
namespace {

constexpr double u = unit_roundoff;

/// x and w of a problem, and what their products may be off by.
struct Factors {
  explicit Factors(const Data& data)
      : x(data.arrays["x"]), w(data.arrays["w"]), x_norms(row_norms(x)), w_norms(column_norms(w)) {}
  double error(std::int64_t row, std::int64_t column) const {
    return 4.0 * root(x.extents()[1] + 2) * u * x_norms[at(row)] * w_norms[at(column)];
  }
  const HostTensor &x, &w;
  std::vector<double> x_norms, w_norms;
};

void judge_grad_x(LossJudge& judge, const Factors& factors, const HostTensor& tensor) {
  const auto [b, h, v] = judge.data().key.shape;
  const auto& problem = judge.problem();
  const auto dz = oracle::backward(problem).grad_logits;
  const auto wanted = products_with_w(factors.w, dz, problem.b);
  for (std::size_t i = 0; i < judge.rows().size(); ++i) {
    double tolerance = 0.0;
    for (std::int64_t j = 0; j < v; ++j) {
      const auto k = i * at(v) + at(j);
      tolerance += factors.w_norms[at(j)] * (judge.dz_error(i, problem.logits[k], dz[k]) +
                                             4.0 * root(v) * u * std::abs(dz[k]));
    }
    const auto row = judge.rows()[i];
    judge.compare("grad_x, row", row, wanted.data() + at(h) * i, h, tolerance, tensor, row * h, 1);
  }
  if (std::cmp_equal(judge.data().counted.size(), b)) return;
  std::int64_t ignored = 0;
  while (judge.data().labels[at(ignored)] >= 0) ++ignored;
  const std::vector<double> zeros(at(h));
  judge.compare("grad_x, ignored row", ignored, zeros.data(), h, 0.0, tensor, ignored * h, 1);
}

/// For grad_w too every row's lse is needed, which the streaming implementation gives.
void judge_grad_w(LossJudge& judge, const Factors& factors, const HostTensor& tensor) {
  const Data& data = judge.data();
  const auto [b, h, v] = data.key.shape;
  // One column is a shard of the vocabulary, whose merged statistics are known.
  oracle::Problem p;
  p.b = b, p.h = h, p.v = 1;
  p.options.vocab_size_total = v;
  for (std::int64_t i = 0; i < b * h; ++i) p.x.push_back(element(factors.x, i));
  p.labels.assign(data.labels.begin(), data.labels.end());
  p.max = data.lse;
  p.sum.assign(at(b), 1.0);
  p.w.resize(at(h));
  const Dims& strides = factors.w.strides();
  const auto first_label = data.labels[at(data.counted.front())];
  for (const auto column : sample(v, sampled_columns, first_label)) {
    p.options.vocab_offset = column;
    for (std::int64_t i = 0; i < h; ++i) {
      p.w[at(i)] = element(factors.w, i * strides[0] + column * strides[1]);
    }
    const auto wanted = oracle::backward(p);
    double tolerance = 0.0;
    for (const auto r : data.counted) {
      const double dz = wanted.dz[at(r)];
      const double share = 1.0 / static_cast<double>(data.counted.size());
      const double probability = dz + (data.labels[at(r)] == column ? share : 0.0);
      tolerance +=
          factors.x_norms[at(r)] *
          (probability * (factors.error(r, column) + judge.largest_lse_error()) +
           share * judge.filter_eps() +
           std::abs(dz) * (judge.dz_rounding() + (16.0 + 4.0 * root(b)) * u) + judge.dz_floor());
    }
    judge.compare("grad_w, column", column, wanted.grad_w.data(), h, tolerance, tensor,
                  column * strides[1], strides[0]);
  }
}

class Description final : public OperatorOf<linear_cross_entropy::Operator> {
 public:
  bool has_trained_data() const override { return true; }
  std::string why_no_products() const override { return ""; }

  void make_arrays(Data& data) const override {
    if (data.key.trained) {
      auto [x, w] = trained(data.key, data.labels);
      data.arrays.set("x", std::move(x));
      data.arrays.set("w", std::move(w));
    } else {
      data.arrays.set("x", hidden_states(data.key, 1));
      data.arrays.set("w", weights(data.key, 2));
    }
  }

  Deviation judge(const Data& data, const Outcome& outcome, double filter_eps) const override {
    const Factors factors(data);
    const auto of_rows = [&](const std::vector<std::int64_t>& rows) {
      return products(factors.x, factors.w, rows);
    };
    const auto one = [&](std::int64_t row, std::int64_t column) {
      return product(factors.x, factors.w, row, column);
    };
    const auto error = [&](std::int64_t row, std::int64_t column) {
      return factors.error(row, column);
    };
    LossJudge judge(data,
                    {.of_rows = of_rows, .one = one, .error = error, .row_norms = factors.x_norms},
                    filter_eps);
    judge.values(outcome);
    if (const auto& tensor = outcome["grad_x"]) judge_grad_x(judge, factors, tensor);
    if (const auto& tensor = outcome["grad_w"]) judge_grad_w(judge, factors, tensor);
    return judge.finish();
  }
};

}  // namespace

const BenchOperator& linear_cross_entropy_in_bench() {
  static const Description description;
  return description;
}

}  // namespace tessera::bench
