// SPDX-License-Identifier: Apache-2.0
// Thousands of tiles whose maximum never changes. A rescale factor that is not exactly 1 then
// leaves the same rounding residue at every step: 1e-4 after a few thousand.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

class Long : public ImplementationTest {};

TEST_P(Long, ConstantMaximumOverThousandsOfTiles) {
  if (tiny()) GTEST_SKIP() << "needs millions of columns";
  constexpr std::int64_t b = 3, v = 1'500'000;
  // Products of one term: what deviates is the sum over the vocabulary alone. Every 48th column
  // holds the maximum, so that it is there from the first tile of every slice on.
  std::vector<float> x{1.0f, 0.75f, 1.0f}, w(v);
  constexpr float maximum = 3.3f;
  for (std::int64_t j = 0; j < v; ++j) {
    const auto bits = static_cast<std::uint64_t>(j) * 0x9e3779b97f4a7c15ull >> 40;
    w[static_cast<std::size_t>(j)] =
        j % 48 == 0 ? maximum : maximum - 6.0f * static_cast<float>(bits) * 0x1p-24f;
  }
  const std::vector<std::int32_t> labels{0, 48, v - 1};
  std::vector<float> lse(b), statistics(2 * b), loss(b), entropy(b);
  Outputs outputs;
  outputs.loss = loss;
  outputs.lse = lse;
  outputs.entropy = entropy;
  outputs.statistics = MutableView::host(statistics.data(), {b, 2});
  LossOptions options;
  options.reduction = Reduction::none;
  lce::ExecutionOptions execution;
  execution.implementation = GetParam();
  lce::forward(
      shared_context(),
      {.x = View::host(x.data(), {b, 1}), .labels = labels, .w = View::host(w.data(), {1, v})},
      outputs, options, execution)
      .wait();
  for (std::size_t row = 0; row < b; ++row) {
    double sum = 0.0, weighted = 0.0;
    const double top = static_cast<double>(x[row]) * maximum;
    for (const float value : w) {
      const double far = static_cast<double>(x[row]) * value - top;
      sum += std::exp(far);
      weighted += std::exp(far) * far;
    }
    const double expected = top + std::log(sum);
    const double label = static_cast<double>(x[row]) * w[static_cast<std::size_t>(labels[row])];
    // Through (max, sum) lse has no last rounding of its own.
    EXPECT_NEAR(statistics[2 * row] + std::log(static_cast<double>(statistics[2 * row + 1])),
                expected, 1e-6)
        << row;
    // The nearest f32 to an lse of 16 is already up to 1e-6 off.
    EXPECT_NEAR(lse[row], expected, 1e-6 + 0x1p-23 * std::abs(expected)) << row;
    EXPECT_NEAR(loss[row], expected - label, 1e-6 + 0x1p-23 * std::abs(expected)) << row;
    EXPECT_NEAR(entropy[row], std::log(sum) - weighted / sum, 4e-6) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Long,
                         testing::ValuesIn(implementations_of<lce::Operator>(takes_any_shape)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Long);

}  // namespace
}  // namespace tessera::test
