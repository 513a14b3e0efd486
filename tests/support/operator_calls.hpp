// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/support/runner.hpp"
#include "tests/support/test_operator.hpp"

/// The half of a TestOperator that follows from OperatorTraits.
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
  return execution;
}

/// The default execution on one implementation.
template <class Operator>
typename Operator::ExecutionOptions on(const std::string& implementation) {
  typename Operator::ExecutionOptions execution;
  execution.implementation = implementation;
  return execution;
}

/// combine() over one shard that is the whole vocabulary, of a problem whose leading axes these
/// are.
LossResult combined(const PartialResult& partial, const oracle::Problem& problem,
                    const Dims& leading, const LossOptions& options);

template <class Operator>
class TestOperatorOf : public TestOperator {
  using Traits = OperatorTraits<Operator>;

 public:
  const char* name() const final { return Traits::name; }
  std::vector<ImplementationInfo> implementations() const final {
    return Traits::implementations();
  }

  std::vector<InputInfo> inputs() const final {
    std::vector<InputInfo> all;
    for (const auto& i : Traits::inputs) all.push_back({i.name, i.shape, i.types, i.reads});
    return all;
  }
  std::vector<OutputInfo> outputs() const final {
    std::vector<OutputInfo> all;
    for (const auto& o : Traits::outputs) all.push_back({o.name, o.shape, o.types});
    return all;
  }
  std::vector<GradientInfo> gradients() const final {
    std::vector<GradientInfo> all;
    for (const auto& gradient : Traits::gradients) {
      const auto& i = input_of(gradient);
      all.push_back({gradient.name, {i.name, i.shape, i.types, i.reads}});
    }
    return all;
  }

  std::optional<std::string> why_absent(Context& context,
                                        const std::string& implementation) const final {
    if (implementation == default_order) return std::nullopt;
    Case least;
    least.b = least.h = 1;
    least.v = 2;
    typename Operator::Inputs inputs;
    for (const auto& input : Traits::inputs) {
      if (input.reads != Reads::always) continue;
      const DType type = input.types == ElementTypes::integer ? DType::i32 : DType::f32;
      inputs.*input.view = View::host(nullptr, type, extents(least, input.shape));
    }
    return why_unsupported(context, implementation, Pass::forward, inputs, {}, {});
  }

  std::optional<std::string> why_refused(const CaseCall& call) const final {
    return why_unsupported(call.context, call.implementation, call.pass,
                           call.arguments.template inputs<Operator>(call.pass), outputs_of(call),
                           call.results.template gradients<Operator>(call.arguments),
                           options_of(call), execution_of(call));
  }

  Plan planned(const CaseCall& call) const final {
    return plan(call.context, call.pass, call.arguments.template inputs<Operator>(call.pass),
                outputs_of(call), call.results.template gradients<Operator>(call.arguments),
                options_of(call), execution_of(call));
  }

  Dispatch run(const CaseCall& call) const final {
    const auto inputs = call.arguments.template inputs<Operator>(call.pass);
    const LossOptions options = options_of(call);
    if (call.pass == Pass::forward_partial) {
      const auto partial = forward_partial(call.context, inputs, options, execution_of(call));
      const auto& problem = expected_of(call.c).problem;
      call.results.take(combined(partial, problem, call.arguments.rows().leading, options));
      return partial.dispatch;
    }
    Completion done = tessera::run<Operator>(
        call.context, call.pass, inputs, outputs_of(call),
        call.results.template gradients<Operator>(call.arguments), options, execution_of(call));
    done.wait();
    return done.dispatch();
  }

 private:
  static typename Operator::ExecutionOptions execution_of(const CaseCall& call) {
    return execution_options<Operator>(call.implementation, call.c);
  }
  static Outputs outputs_of(const CaseCall& call) {
    return call.pass == Pass::forward_partial ? Outputs{} : call.results.outputs();
  }
  static LossOptions options_of(const CaseCall& call) {
    LossOptions options = call.c.options;
    if (call.pass == Pass::forward_partial) {
      options.wants = every_output();
      options.vocab_size_total = call.c.v;
    }
    return options;
  }
};

}  // namespace tessera::test
