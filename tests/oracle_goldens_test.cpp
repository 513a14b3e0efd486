// SPDX-License-Identifier: Apache-2.0
// The oracle against PyTorch's float64 autograd (tests/goldens/make_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/support/golden.hpp"

namespace tessera {
namespace {

// Both sides are double and differ in the order of their sums: at most a few hundred terms, each
// relative 2^-53, of a magnitude that the largest element bounds. A wrong
// formula is off by 1e-3 and more.
constexpr double tolerance = 1e-12;

void expect_close(const std::string& what, const std::vector<double>& actual,
                  const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double scale = 1.0;
  for (double value : expected) {
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  }
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;  // infinities
    EXPECT_LE(std::abs(actual[i] - expected[i]), tolerance * scale)
        << what << "[" << i << "] is " << actual[i] << ", PyTorch says " << expected[i];
  }
}

class OracleGoldens : public testing::TestWithParam<std::string> {};

TEST_P(OracleGoldens, agrees_with_pytorch) {
  const auto golden = test::read_golden(GetParam());
  const auto values = golden.op->forward_by_oracle(golden.problem);
  const auto gradients = golden.op->backward_by_oracle(golden.problem);
  const std::vector<double> argmax(values.argmax.begin(), values.argmax.end());
  std::map<std::string, const std::vector<double>*> actual = {
      {"loss", &values.loss},
      {"lse", &values.lse},
      {"label_logprob", &values.label_logprob},
      {"entropy", &values.entropy},
      {"z_loss", &values.z_loss},
      {"argmax", &argmax},
      {"divergence", &values.divergence},
      {"target_entropy", &values.target_entropy},
  };
  for (const auto& judged : golden.op->judged())
    actual[judged.name] = &(gradients.*judged.expected);
  // The six outputs and at least one gradient.
  EXPECT_GE(golden.expected.size(), 7u);
  for (const auto& [key, expected] : golden.expected) {
    ASSERT_TRUE(actual.contains(key)) << key;
    expect_close(key, *actual.at(key), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OracleGoldens,
                         testing::ValuesIn(test::golden_folders(TESSERA_GOLDENS)),
                         [](const auto& param_info) {
                           return param_info.param.substr(param_info.param.rfind('/') + 1);
                         });

TEST(OracleGoldensFolder, has_its_cases) {
  EXPECT_GE(test::golden_folders(TESSERA_GOLDENS).size(), 20u);
}

}  // namespace
}  // namespace tessera
