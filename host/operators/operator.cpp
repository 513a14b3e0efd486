// SPDX-License-Identifier: Apache-2.0
#include "host/operators/operator.hpp"

namespace tessera::operators {
namespace {

/// The outputs of a call: those given have the shape that their letters say.
void check_outputs(arguments::Checks& checks, Call& call, Symbols& symbols) {
  const auto& outputs = call.op->outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (call.pass == Pass::backward) {
      checks.refuse(outputs[i].name, call.outputs[i], "backward writes gradients alone");
      continue;
    }
    checks.output(outputs[i].name, call.outputs[i], outputs[i].types);
    symbols.take(checks, outputs[i].name, call.outputs[i], outputs[i].shape);
  }
}

/// Describes the outputs that the call wants, without memory yet.
void describe_outputs(Call& call, const Symbols& symbols) {
  const auto& outputs = call.op->outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!call.wants[i]) continue;
    const DType type =
        outputs[i].types == ElementTypes::floating ? call.inputs[0].dtype() : DType::f32;
    const Dims extents = symbols.expected(outputs[i].shape);
    call.outputs[i] = MutableView::host(nullptr, type, extents, output_strides(call, i, extents));
  }
}

}  // namespace

void PlainOperator::check(const ContextState& state, Call&& given, Form form,
                          const std::function<void(Request&)>& use) const {
  PlainRequest r(std::move(given));
  Call& call = r.call;
  arguments::Checks checks(&state, r.operation(), form);
  if (!call.op->has(call.pass)) {
    std::string passes;
    for (const Pass pass : call.op->passes) {
      passes += (passes.empty() ? "" : ", ") + std::string(to_string(pass));
    }
    checks.fail(std::string(call.op->name) + " has no such pass; it has " + passes);
  }
  const auto& inputs = call.op->inputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (reads_in(call.pass, inputs[i].reads)) continue;
    checks.refuse(inputs[i].name, call.inputs[i], "this pass does not read it; leave it out");
  }
  Symbols symbols;
  check_inputs(checks, call, 0, inputs.size(), symbols);
  check_options(checks, call);
  check_own(checks, call);
  check_outputs(checks, call, symbols);
  check_gradients(checks, call);
  check_execution(checks, call);

  const bool nothing_given = !r.wants_any_output() && !r.wants_any_gradient();
  if (form == Form::owned || (form == Form::question && nothing_given)) {
    if (call.pass != Pass::backward) describe_outputs(call, symbols);
    if (has_gradients(call.pass)) describe_gradients(call);
  }
  require_results(checks, r, form);
  check_overlaps(checks, call);
  use(r);
}

}  // namespace tessera::operators
