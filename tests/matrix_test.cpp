// SPDX-License-Identifier: Apache-2.0
// Every problem of the table on every implementation and family, by every pass, against the oracle.
#include "tests/support/matrix.hpp"

#include <gtest/gtest.h>

#include "tests/support/cases.hpp"

namespace tessera::test {
namespace {

class LinearMatrix : public testing::TestWithParam<MatrixParameter> {};

TEST_P(LinearMatrix, AgreesWithTheOracle) {
  const auto& [implementation, pass, group] = GetParam();
  run_group(shared_context(), implementation, pass, linear_group(group), false);
}

INSTANTIATE_TEST_SUITE_P(All, LinearMatrix,
                         testing::Combine(testing::ValuesIn(linear_implementations()), all_passes,
                                          testing::ValuesIn(linear_groups())),
                         matrix_name);

class LinearMatrixByDefault : public testing::TestWithParam<DefaultOrderParameter> {};

TEST_P(LinearMatrixByDefault, AgreesWithTheOracle) {
  const auto& [on_device, pass, group] = GetParam();
  run_by_default(on_device, pass, linear_group(group), false);
}

INSTANTIATE_TEST_SUITE_P(All, LinearMatrixByDefault,
                         testing::Combine(testing::ValuesIn(default_order_contexts()), all_passes,
                                          testing::ValuesIn(linear_groups())),
                         default_order_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LinearMatrixByDefault);

// A list of implementations without any is a mistake in the environment, not a pass.
TEST(LinearMatrix, HasImplementations) { EXPECT_FALSE(linear_implementations().empty()); }

}  // namespace
}  // namespace tessera::test
