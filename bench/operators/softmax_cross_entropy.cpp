// SPDX-License-Identifier: Apache-2.0
#include "tessera/softmax_cross_entropy.hpp"

#include <cmath>

#include "bench/judge.hpp"
#include "bench/operator.hpp"

namespace tessera::bench {
namespace {

class Benched final : public BenchOperator {
 public:
  Benched() : BenchOperator("softmax_cross_entropy") {}

  bool runs_in_place() const override { return true; }

  void make_arrays(Data& data) const override {
    const auto [b, h, v] = data.key.layer();
    data.arrays.set("logits", random_tensor(data.key.x, {b, v}, {v, 1}, 4, spread_of_logits));
  }

  Deviation judge(const Data& data, const Outcome& outcome, double filter_eps) const override {
    const std::int64_t v = data.key.shape['V'];
    const HostTensor& logits = data.arrays["logits"];
    const auto one = [&](std::int64_t row, std::int64_t column) {
      return element(logits, row * v + column);
    };
    const auto of_rows = [&](const std::vector<std::int64_t>& rows) {
      std::vector<double> result;
      for (const auto row : rows) {
        for (std::int64_t j = 0; j < v; ++j) result.push_back(one(row, j));
      }
      return result;
    };
    const auto exact = [](std::int64_t, std::int64_t) { return 0.0; };
    LossJudge judge(data, {.of_rows = of_rows, .one = one, .error = exact}, filter_eps);
    judge.values(outcome);
    if (const auto& tensor = outcome["grad_logits"]) judge_grad_logits(judge, tensor);
    return judge.finish();
  }

 private:
  static void judge_grad_logits(LossJudge& judge, const HostTensor& tensor) {
    const auto& problem = judge.problem();
    const auto dz = oracle::backward(problem).grad_logits;
    for (std::size_t i = 0; i < judge.rows().size(); ++i) {
      for (std::int64_t j = 0; j < problem.v; ++j) {
        const auto k = i * at(problem.v) + at(j);
        const double tolerance = judge.dz_error(i, problem.logits[k], dz[k]) +
                                 roundoff(tensor.dtype()) * std::abs(dz[k]) +
                                 smallest(tensor.dtype());
        judge.check("grad_logits, row", judge.rows()[i],
                    element(tensor, judge.rows()[i] * problem.v + j) - dz[k], tolerance);
      }
    }
  }
};

}  // namespace

const BenchOperator& softmax_cross_entropy_in_bench() {
  static const Benched benched;
  return benched;
}

}  // namespace tessera::bench
