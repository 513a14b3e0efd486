// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/broken_call.hpp"
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
  bool has_pass(Pass pass) const final { return tessera::has_pass<Operator>(pass); }
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
      if (!is_needed(input.reads)) continue;
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

  Completion start(const CaseCall& call, const InFlight& how) const final {
    auto execution = execution_of(call);
    execution.queue = how.queue;
    execution.wait_for = how.wait_for;
    return tessera::run<Operator>(
        call.context, call.pass, call.arguments.template inputs<Operator>(call.pass),
        outputs_of(call), call.results.template gradients<Operator>(call.arguments),
        options_of(call), execution);
  }

  Dispatch run(const CaseCall& call) const final {
    if (call.pass == Pass::forward_partial) {
      const auto inputs = call.arguments.template inputs<Operator>(call.pass);
      const auto options = options_of(call);
      const auto partial = forward_partial(call.context, inputs, options, execution_of(call));
      const WholeInputs whole(expected_of(call.c).problem, call.arguments.rows().leading);
      call.results.template take<Operator>(combine(partial, *whole, options));
      return partial.dispatch;
    }
    Completion done = start(call, {});
    done.wait();
    return done.dispatch();
  }

  void run_broken(const CaseCall& call, std::uint64_t how, std::string& broken) const final {
    BrokenCall<Operator> wrong = {
        call.pass,        call.arguments.template inputs<Operator>(call.pass),
        outputs_of(call), call.results.template gradients<Operator>(call.arguments),
        options_of(call), execution_of(call)};
    const auto breaks = wrong.breaks();
    const auto& [name, apply] = breaks[how % breaks.size()];
    broken = name;
    apply(wrong);
    if (call.pass == Pass::forward_partial) {
      forward_partial(call.context, wrong.inputs, wrong.options, wrong.execution);
    } else {
      tessera::run<Operator>(call.context, call.pass, wrong.inputs, wrong.outputs, wrong.gradients,
                             wrong.options, wrong.execution)
          .wait();
    }
  }

  /// The options of a case, with those of its loss.
  typename Operator::Options own_options(const Case& c, const LossOptions& loss) const {
    auto options = options_with<Operator>(loss);
    set_own_options(c, options);
    return options;
  }

 private:
  static typename Operator::ExecutionOptions execution_of(const CaseCall& call) {
    return execution_options<Operator>(call.implementation, call.c);
  }
  static typename Operator::Outputs outputs_of(const CaseCall& call) {
    if (call.pass == Pass::forward_partial) return {};
    return call.results.template outputs<Operator>();
  }
  typename Operator::Options options_of(const CaseCall& call) const {
    auto options = own_options(call.c, call.c.options);
    if (call.pass == Pass::forward_partial) {
      loss_options(options).wants = every_output<Operator>();
      loss_options(options).vocab_size_total = call.c.v;
    }
    return options;
  }

 protected:
  /// Options that the operator has besides those of its loss.
  virtual void set_own_options(const Case&, typename Operator::Options&) const {}
};

}  // namespace tessera::test
