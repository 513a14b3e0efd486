// SPDX-License-Identifier: Apache-2.0
#include "tests/support/broken_call.hpp"
#include "tests/support/runner.hpp"
#include "tests/support/test_operator.hpp"

/// The calls of a TestOperator as values.
namespace tessera::test {

operators::Call TestOperator::call_of(const CaseCall& of) const {
  const Case& c = of.c;
  operators::Call call(op_, of.pass);
  for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
    const auto& input = op_.inputs[i];
    if (reads_in(of.pass, input.reads)) call.inputs[i] = of.arguments[input.name].view();
  }
  for (std::size_t i = 0; i < op_.outputs.size() && of.pass != Pass::forward_partial; ++i) {
    call.outputs[i] = of.results[op_.outputs[i].name].mutable_view();
  }
  for (std::size_t i = 0; i < op_.gradients.size() && has_gradients(of.pass); ++i) {
    const auto& gradient = op_.gradients[i];
    const bool in_place = c.in_place && i == 0;
    call.gradients[i] = in_place ? of.arguments[input_of(gradient).name].mutable_view()
                                 : of.results[gradient.name].mutable_view();
    call.accumulate[i] = (c.accumulate >> i & 1u) != 0;
  }
  set_options(c, call);
  if (of.pass == Pass::forward_partial) call.set("vocab_size_total", c.v);
  call.set("gradient_filter_eps", c.gradient_filter_eps);
  call.set("dz_dtype", c.dz_dtype ? OptionValue(static_cast<std::int64_t>(*c.dz_dtype)) : Unset());
  if (of.implementation != default_order) call.implementation = of.implementation;
  if (c.block_sizes) call.set_block_sizes(to_named(*c.block_sizes));
  call.knobs = c.knobs;
  call.workspace_bytes = c.workspace_bytes;
  return call;
}

std::optional<std::string> TestOperator::why_absent(Context& context,
                                                    const std::string& implementation) const {
  if (implementation == default_order) return std::nullopt;
  Case least;
  least.b = 1;
  least.h = least.v = 8;
  operators::Call call(op_, Pass::forward);
  for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
    const auto& input = op_.inputs[i];
    if (!is_needed(input.reads)) continue;
    const DType real = is_matrix_unit(implementation) ? DType::bf16 : DType::f32;
    const DType type = input.types == ElementTypes::integer ? DType::i32 : real;
    call.inputs[i] = View::host(nullptr, type, extents(least, input.shape));
  }
  return operators::why_unsupported(context, implementation, call);
}

std::optional<std::string> TestOperator::why_refused(const CaseCall& call) const {
  return operators::why_unsupported(call.context, call.implementation, call_of(call));
}

Plan TestOperator::planned(const CaseCall& call) const {
  return operators::plan(call.context, call_of(call));
}

Completion TestOperator::start(const CaseCall& of, const InFlight& how) const {
  auto call = call_of(of);
  call.queue = how.queue;
  call.wait_for = how.wait_for;
  return operators::run(of.context, call);
}

Dispatch TestOperator::run(const CaseCall& call) const {
  if (call.pass == Pass::forward_partial) {
    const auto partial = operators::forward_partial(call.context, call_of(call));
    combine_into(call, partial);
    return partial.result.dispatch;
  }
  Completion done = start(call, {});
  done.wait();
  return done.dispatch();
}

void TestOperator::run_broken(const CaseCall& of, std::uint64_t how, std::string& broken) const {
  BrokenCall wrong{call_of(of)};
  const auto breaks = wrong.breaks();
  const auto& [name, apply] = breaks[how % breaks.size()];
  broken = name;
  apply(wrong);
  if (of.pass == Pass::forward_partial) {
    operators::forward_partial(of.context, wrong.call);
  } else {
    operators::run(of.context, wrong.call).wait();
  }
}

}  // namespace tessera::test
