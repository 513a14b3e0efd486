// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/operator_calls.hpp"
#include "tests/support/runner.hpp"
#include "tests/support/test_operator.hpp"

/// Tests for each implementation of an operator, or of every operator.
namespace tessera::test {

/// "opencl.cpu" as GoogleTest allows it in a name.
inline std::string allowed_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
  return name;
}

inline std::string implementation_name(const testing::TestParamInfo<std::string>& info) {
  return allowed_name(info.param);
}

/// A fixture with the name of an implementation of linear_cross_entropy; skipped where that has no
/// device.
class ImplementationTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto& op = test_operator<linear_cross_entropy::Operator>();
    if (const auto why = op.why_absent(shared_context(), GetParam())) GTEST_SKIP() << *why;
  }
};

/// An operator and one of its implementations.
struct OperatorParameter {
  const TestOperator* op;
  std::string implementation;
};

inline void PrintTo(const OperatorParameter& parameter, std::ostream* out) {
  *out << parameter.op->name() << " on " << parameter.implementation;
}

/// A fixture with an operator on an implementation; skipped where that has no device.
class OperatorTest : public testing::TestWithParam<OperatorParameter> {
 protected:
  void SetUp() override {
    const auto& [op, implementation] = GetParam();
    // The smallest problem of all is not one of whole blocks.
    if (implementation == "tpu_tile") return;
    if (const auto why = op->why_absent(shared_context(), implementation)) GTEST_SKIP() << *why;
  }
};

/// Every implementation of every operator to which a test applies.
inline std::vector<OperatorParameter> operators_and_implementations(Applies applies = nullptr) {
  std::vector<OperatorParameter> all;
  for (const TestOperator* op : test_operators()) {
    for (const auto& name : implementations_of(*op)) {
      if (applies == nullptr || applies(name)) all.push_back({op, name});
    }
  }
  return all;
}

inline std::string operator_name(const testing::TestParamInfo<OperatorParameter>& info) {
  return info.param.op->name() + ("_" + allowed_name(info.param.implementation));
}

}  // namespace tessera::test
