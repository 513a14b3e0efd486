// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/runner.hpp"

/// What the matrices of both operators share: one gtest per implementation, pass and group.
namespace tessera::test {

/// The gradients of `mask`, bits of GradientBit, as what a case adds to.
inline linear_cross_entropy::Accumulate accumulate_of(unsigned mask) {
  using linear_cross_entropy::Accumulate;
  Accumulate gradients;
  if ((mask & grad_x_bit) != 0) gradients = gradients | Accumulate::grad_x;
  if ((mask & grad_w_bit) != 0) gradients = gradients | Accumulate::grad_w;
  if ((mask & grad_bias_bit) != 0) gradients = gradients | Accumulate::grad_bias;
  return gradients;
}

using MatrixParameter = std::tuple<std::string, Pass, std::string>;

inline const auto all_passes =
    testing::Values(Pass::forward, Pass::backward, Pass::value_and_grad, Pass::forward_partial);

inline std::string matrix_name(const testing::TestParamInfo<MatrixParameter>& info) {
  std::string name = std::get<0>(info.param) + "_" + to_string(std::get<1>(info.param)) + "_" +
                     std::get<2>(info.param);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
  return name;
}

/// "opencl.cpu" as GoogleTest allows it.
inline std::string implementation_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
  return name;
}

/// A fixture with the name of an implementation; skipped where that has no device.
class ImplementationTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const auto reason = why_absent(GetParam(), false)) GTEST_SKIP() << *reason;
  }
};

/// Runs a group, or its cases whose names contain one of the comma-separated TESSERA_TEST_CASES; at
/// least one of them must have run.
inline void run_group(Context& context, const std::string& implementation, Pass pass,
                      const std::vector<Case>& cases, bool softmax) {
  if (const auto reason = why_absent(implementation, softmax)) GTEST_SKIP() << *reason;
  int served = 0;
  int wanted = 0;
  for (const Case& c : cases) {
    if (!is_wanted(c.name)) continue;
    ++wanted;
    // The merged outputs of one shard need labels in host memory, and are always dense.
    if (pass == Pass::forward_partial && c.place == Place::device) continue;
    served += run_case(context, implementation, pass, c) ? 1 : 0;
  }
  if (wanted == 0) GTEST_SKIP() << "TESSERA_TEST_CASES names no case of the group";
  EXPECT_GT(served, 0) << implementation << " refused every case of the group";
}

/// The default order, as users get it who name nothing: on the device, and on a context without
/// one.
inline void run_by_default(bool on_device, Pass pass, const std::vector<Case>& cases,
                           bool softmax) {
  if (on_device) {
    if (!shared_context().has_device()) GTEST_SKIP() << "no device";
    return run_group(shared_context(), default_order, pass, cases, softmax);
  }
  Context host({.host_only = true, .warning_handler = [](const std::string&) {}});
  run_group(host, default_order, pass, cases, softmax);
}

/// Both, or neither where the environment names implementations.
inline std::vector<bool> default_order_contexts() {
  if (std::getenv("TESSERA_TEST_IMPLEMENTATIONS") != nullptr) return {};
  return {true, false};
}

using DefaultOrderParameter = std::tuple<bool, Pass, std::string>;

inline std::string default_order_name(const testing::TestParamInfo<DefaultOrderParameter>& info) {
  return std::string(std::get<0>(info.param) ? "on_the_device_" : "without_one_") +
         to_string(std::get<1>(info.param)) + "_" + std::get<2>(info.param);
}

}  // namespace tessera::test
