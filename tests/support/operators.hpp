// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tessera/operators.hpp"

namespace tessera::test {

class TestOperator;

/// What the tests know of an operator (test_operator.hpp), which its own file in
/// tests/support/operators defines.
template <class Operator>
const TestOperator& test_operator();

// One line for each operator.
template <>
const TestOperator& test_operator<linear_cross_entropy::Operator>();
template <>
const TestOperator& test_operator<softmax_cross_entropy::Operator>();
template <>
const TestOperator& test_operator<linear_distillation::Operator>();

/// All of tessera::Operators, in their order.
inline std::vector<const TestOperator*> test_operators() {
  std::vector<const TestOperator*> all;
  for_each_operator([&]<class Operator>(std::type_identity<Operator>) {
    all.push_back(&test_operator<Operator>());
  });
  return all;
}

}  // namespace tessera::test
