// SPDX-License-Identifier: Apache-2.0
// Calls as they are cut for a CPU of many cores, on whatever the device is: results do not depend
// on how many work-groups share rows and columns.
#include <gtest/gtest.h>

#include "host/opencl/runtime.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {

class ManyCores : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    auto* runtime = opencl::runtime_of(context_.state());
    if (runtime == nullptr || !runtime->facts().is_cpu) GTEST_SKIP() << "no OpenCL CPU";
    runtime->facts_for_test().compute_units = 64;
    runtime->facts_for_test().bf16_products = opencl::Bf16Products::emulated;
  }
  Context context_{{.warning_handler = [](const std::string&) {}}};
};

/// A few strips of rows in each product, and columns enough to be divided: of H in grad_w, of
/// tokens in logits and grad_x.
TEST_P(ManyCores, DivideColumns) {
  Case c;
  c.name = std::string("many_cores_") + to_string(GetParam());
  c.b = 301;
  c.h = 418;
  c.v = 50;
  c.x_type = c.w_type = GetParam();
  c.labels = Labels::some_ignored;
  c.bias = true;
  c.accumulate = true;  // so that no logits wait in grad_w, and backward forms them again
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
    EXPECT_TRUE(run_case(context_, "opencl.cpu", pass, c)) << to_string(pass);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ManyCores, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return to_string(type.param); });

}  // namespace
}  // namespace tessera::test
