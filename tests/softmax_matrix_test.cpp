// SPDX-License-Identifier: Apache-2.0
// The softmax operator on every problem of the table, gradients in place included.
#include <gtest/gtest.h>

#include "tests/support/cases.hpp"
#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {

class SoftmaxMatrix : public testing::TestWithParam<MatrixParameter> {};

TEST_P(SoftmaxMatrix, AgreesWithTheOracle) {
  const auto& [implementation, pass, group] = GetParam();
  run_group(shared_context(), implementation, pass, softmax_group(group), true);
}

INSTANTIATE_TEST_SUITE_P(All, SoftmaxMatrix,
                         testing::Combine(testing::ValuesIn(softmax_implementations()), all_passes,
                                          testing::ValuesIn(softmax_groups())),
                         matrix_name);

class SoftmaxMatrixByDefault : public testing::TestWithParam<DefaultOrderParameter> {};

TEST_P(SoftmaxMatrixByDefault, AgreesWithTheOracle) {
  const auto& [on_device, pass, group] = GetParam();
  run_by_default(on_device, pass, softmax_group(group), true);
}

INSTANTIATE_TEST_SUITE_P(All, SoftmaxMatrixByDefault,
                         testing::Combine(testing::ValuesIn(default_order_contexts()), all_passes,
                                          testing::ValuesIn(softmax_groups())),
                         default_order_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SoftmaxMatrixByDefault);

TEST(SoftmaxMatrix, HasImplementations) { EXPECT_FALSE(softmax_implementations().empty()); }

}  // namespace
}  // namespace tessera::test
