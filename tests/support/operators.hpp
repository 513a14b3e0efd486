// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "host/catalog/operators.hpp"

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

/// All of LossOperators, in their order.
inline std::vector<const TestOperator*> test_operators() {
  std::vector<const TestOperator*> all;
  for_each_loss([&]<class Operator>(std::type_identity<Operator>) {
    all.push_back(&test_operator<Operator>());
  });
  return all;
}

/// The operator's call with views for `pass`, which is not forward_partial.
template <class Operator>
Completion run_views(Context& context, Pass pass, const typename Operator::Inputs& inputs,
                     const typename Operator::Outputs& outputs,
                     const typename Operator::Gradients& gradients,
                     const typename Operator::Options& options,
                     const typename Operator::ExecutionOptions& execution) {
  // By argument-dependent lookup, in the operator's namespace.
  if (pass == Pass::forward) return forward(context, inputs, outputs, options, execution);
  if (pass == Pass::backward) return backward(context, inputs, gradients, options, execution);
  return value_and_grad(context, inputs, outputs, gradients, options, execution);
}

}  // namespace tessera::test
