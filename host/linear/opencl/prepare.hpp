// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "host/dispatch/knobs.hpp"
#include "host/linear/opencl/plan.hpp"
#include "host/loss/opencl_operator.hpp"
#include "host/loss/targets.hpp"

/// What the rows `opencl.*` of operators have in common whose logits are a product.
namespace tessera::linear {

template <class Programs>
using Prepared = loss::Prepared<Schedule, Programs>;

inline engines::Operands operands_of(const Request& request) {
  return {.a = request.inputs.w.dtype(), .b = request.inputs.x.dtype()};
}

/// Adds what `prepare` looks at besides views and options: Opencl::add_to_key of these operators.
template <class Op>
void add_to_key(const loss::OperatorRequest<Op>& request, std::vector<std::int64_t>& key) {
  key.push_back(loss::counted_rows(request.loss));
  key.push_back(kernels_can_read(request.gradients.grad_w));
}

/// Engine and schedule of a request; `programs` are left to the operator. Throws Error
/// invalid_argument for illegal blocks and knobs, workspace_too_small, out_of_memory.
template <class Programs>
Prepared<Programs> prepare(const Request& request, const std::string& engine_name,
                           opencl::Runtime& runtime, const Teacher& teacher = {}) {
  Prepared<Programs> made;
  auto operands = operands_of(request);
  operands.n = loss::counted_rows(request.loss);
  const std::vector<NamedValue> given(request.execution.knobs.begin(),
                                      request.execution.knobs.end());
  made.shapes = engines::shapes_with(engines::engine_entry(engine_name), runtime.facts(), operands,
                                     given, &runtime, made.notes);
  auto choice = make_schedule(request, made.shapes, runtime.facts(), runtime.info(), teacher);
  made.engine = std::move(choice.engine);
  made.schedule = std::move(choice.schedule);
  dispatch::check_knobs(given, knobs_of(request, *made.engine, made.schedule),
                        "opencl." + engine_name);
  if (made.shapes.front()->multiplies_pairs() && !made.engine->multiplies_pairs()) {
    made.notes.push_back(
        "bf16 is widened to f32: blocks or memory have room for tiles of half a register only");
  }
  if (has_gradients(request.loss.pass) && made.engine->multiplies_pairs()) {
    made.notes.push_back(made.schedule.stored_pairs > 0
                             ? "dz is rounded to bf16, and gradients are multiplied by pairs"
                             : "dz stays f32, as dz_dtype asks");
  }
  return made;
}

}  // namespace tessera::linear
