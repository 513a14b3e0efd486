// SPDX-License-Identifier: Apache-2.0
#include "tessera/linear_cross_entropy.hpp"

#include <cmath>
#include <numeric>
#include <vector>

#include "bench/judge.hpp"
#include "bench/linear_data.hpp"
#include "bench/linear_judge.hpp"
#include "bench/operator.hpp"

namespace tessera::bench {
namespace {

constexpr double u = unit_roundoff;

/// For grad_w too every row's lse is needed, which the streaming implementation gives.
void judge_grad_w(LossJudge& judge, const Factors& factors, const HostTensor& tensor) {
  const Data& data = judge.data();
  const auto [b, h, v] = data.key.layer();
  // One column is a shard of the vocabulary, whose merged statistics are known.
  oracle::Problem p;
  p.b = b, p.h = h, p.v = 1;
  p.options.vocab_size_total = v;
  for (std::int64_t i = 0; i < b * h; ++i) p.x.push_back(element(factors.x, i));
  std::vector<std::int64_t> all(at(b));
  std::iota(all.begin(), all.end(), 0);
  set_targets(p, data, all);
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
      double probability = dz;
      for (const auto& [word, q] : oracle::target_of(p, r)) {
        if (word == column) probability += share * q;
      }
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

class Benched final : public BenchOperator {
 public:
  Benched() : BenchOperator("linear_cross_entropy") {}

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
    const Factors factors(data.arrays["x"], data.arrays["w"]);
    LossJudge judge(data, logits_of(factors), filter_eps);
    judge.values(outcome);
    if (const auto& tensor = outcome["grad_x"]) {
      const auto dz = oracle::backward(judge.problem()).grad_logits;
      judge_grad_x(judge, factors, dz, tensor);
    }
    if (const auto& tensor = outcome["grad_w"]) judge_grad_w(judge, factors, tensor);
    return judge.finish();
  }
};

}  // namespace

const BenchOperator& linear_cross_entropy_in_bench() {
  static const Benched benched;
  return benched;
}

}  // namespace tessera::bench
