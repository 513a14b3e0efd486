// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/support/runner.hpp"
#include "tests/support/test_operator.hpp"

/// The half of a TestOperator that needs the types of the operator's structs.
namespace tessera::test {

/// How `run_case` executes a case.
template <class Operator>
typename Operator::ExecutionOptions execution_options(const std::string& implementation,
                                                      const Case& c) {
  typename Operator::ExecutionOptions execution;
  if (implementation != default_order) execution.implementation = implementation;
  if (c.block_sizes) {
    execution.block_sizes.emplace();
    from_named(to_named(*c.block_sizes), *execution.block_sizes);
  }
  execution.knobs = c.knobs;
  execution.workspace_bytes = c.workspace_bytes;
  if constexpr (requires { execution.gradient_filter_eps; }) {
    execution.gradient_filter_eps = c.gradient_filter_eps;
  }
  if constexpr (requires { execution.dz_dtype; }) execution.dz_dtype = c.dz_dtype;
  return execution;
}

/// The default execution on one implementation.
template <class Operator>
typename Operator::ExecutionOptions on(const std::string& implementation) {
  typename Operator::ExecutionOptions execution;
  execution.implementation = implementation;
  return execution;
}

/// What combine() reads of a problem whose leading axes these are.
class WholeInputs {
 public:
  WholeInputs(const oracle::Problem& problem, const Dims& leading);
  const CombineInputs& operator*() const { return inputs_; }

 private:
  std::vector<float> weight_, class_weight_, probs_, targets_;
  CombineInputs inputs_{};
};

template <class Operator>
class TestOperatorOf : public TestOperator {
 public:
  TestOperatorOf() : TestOperator(OperatorTraits<Operator>::name) {}

  void set_options(const Case& c, operators::Call& call) const final {
    const auto options = own_options(c, c.options);
    std::size_t at = 0;
    for (const auto& each : OperatorTraits<Operator>::options) {
      call.options[at++] = each.value(options);
    }
  }
  void combine_into(const CaseCall& call, const loss::CallPartial& partial) const final {
    auto options = own_options(call.c, call.c.options);
    loss_options(options).wants = every_output<Operator>();
    loss_options(options).vocab_size_total = call.c.v;
    const WholeInputs whole(expected_of(call.c).problem, call.arguments.rows().leading);
    decltype(forward_partial(call.context, typename Operator::Inputs(), options)) shard;
    static_cast<PartialResult&>(shard) = partial.result;
    if constexpr (requires { shard.divergence_rows; }) {
      shard.divergence = effective_divergence(options);
      shard.divergence_rows = loss::rows_of<linear_distillation::DivergenceSums>(partial.own);
    }
    call.results.template take<Operator>(combine(shard, *whole, options));
  }

  /// The options of a case, with those of its loss.
  typename Operator::Options own_options(const Case& c, const LossOptions& loss) const {
    auto options = options_with<Operator>(loss);
    set_own_options(c, options);
    return options;
  }

 protected:
  /// Options that the operator has besides those of its loss.
  virtual void set_own_options(const Case&, typename Operator::Options&) const {}
};

}  // namespace tessera::test
