// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/knobs.hpp"
#include "host/linear_cross_entropy/opencl/prepare.hpp"

/// The implementations `opencl.*`: what the table asks of them.
namespace tessera::linear_cross_entropy {
namespace {

engines::Operands operands_of(const Request& request) {
  return {.a = request.inputs.w.dtype(), .b = request.inputs.x.dtype()};
}

std::optional<std::string> refuses(const Request& request) {
  return engines::beyond_32_bits(
      {{"B", request.loss.b}, {"H", hidden(request)}, {"V", request.loss.v}});
}

void add_to_key(const Request& request, std::vector<std::int64_t>& key) {
  key.push_back(counted_rows(request.loss));
  key.push_back(kernels_can_read(request.gradients.grad_w));
  key.push_back(std::bit_cast<std::int32_t>(request.execution.gradient_filter_eps));
}

CostEstimate cost_of(const Request& request, const Prepared& prepared) {
  const auto& schedule = prepared.schedule;
  // With the vocabulary outside, the values of all rows are known before the first gradient.
  const bool twice = schedule.v_outer && !schedule.keeps_logits;
  return cost(request, schedule.blocks, twice && request.loss.pass == Pass::value_and_grad ? 2 : 1);
}

}  // namespace

Prepared prepare(const Request& request, const std::string& engine_name, opencl::Runtime& runtime) {
  Prepared made;
  auto operands = operands_of(request);
  operands.n = counted_rows(request.loss);
  const auto& given = request.execution.knobs;
  made.shapes = engines::shapes_with(engines::engine_entry(engine_name), runtime.facts(), operands,
                                     given, &runtime, made.notes);
  auto choice = make_schedule(request, made.shapes, runtime.facts(), runtime.info());
  made.engine = std::move(choice.engine);
  made.schedule = std::move(choice.schedule);
  dispatch::check_knobs(given, knobs_of(request, *made.engine, made.schedule),
                        "opencl." + engine_name);
  if (made.shapes.front()->multiplies_pairs() && !made.engine->multiplies_pairs()) {
    made.notes.push_back(
        "bf16 is widened to f32: blocks or memory have room for tiles of half a register only");
  }
  made.programs =
      programs_of(request, *made.engine, made.schedule, loss::statistics_options(request.loss));
  return made;
}

}  // namespace tessera::linear_cross_entropy

auto tessera::loss::HostTraits<tessera::linear_cross_entropy::Operator>::opencl()
    -> dispatch::Table<Request> {
  using namespace linear_cross_entropy;
  return opencl_rows<Operator, linear_cross_entropy::Prepared>(
      {.operands = operands_of,
       .refuses = refuses,
       .prepare = prepare,
       .knobs =
           [](const Request& request, const linear_cross_entropy::Prepared& prepared) {
             return knobs_of(request, *prepared.engine, prepared.schedule);
           },
       .kernels =
           [](const Request& request, const linear_cross_entropy::Prepared& prepared) {
             return kernels_of(request, prepared.schedule, prepared.programs);
           },
       .minimum_workspace_bytes =
           [](const Request& request, const linear_cross_entropy::Prepared& prepared,
              const opencl::Runtime& runtime) {
             return linear_cross_entropy::minimum_workspace_bytes(request, prepared.shapes,
                                                                  runtime.facts(), runtime.info());
           },
       .enqueue =
           [](opencl::Call& call, const Request& request,
              const linear_cross_entropy::Prepared& prepared) {
             Run(call, request, *prepared.engine, prepared.schedule, prepared.programs).enqueue();
           },
       .add_to_key = add_to_key,
       .cost = cost_of});
}
