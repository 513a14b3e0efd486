// SPDX-License-Identifier: Apache-2.0
#include "host/linear_cross_entropy/opencl/prepare.hpp"

/// The implementations `opencl.*`: what the table asks of them.
namespace tessera::linear_cross_entropy {
namespace {

std::optional<std::string> refuses(const Request& request, const opencl::DeviceFacts&) {
  return engines::beyond_32_bits(
      {{"B", request.loss.b}, {"H", hidden(request)}, {"V", request.loss.v}});
}

CostEstimate cost_of(const Request& request, const Prepared& prepared) {
  const auto& schedule = prepared.schedule;
  // With the vocabulary outside, the values of all rows are known before the first gradient.
  const bool twice = schedule.v_outer && !schedule.keeps_logits;
  return cost(request, schedule.blocks, twice && request.loss.pass == Pass::value_and_grad ? 2 : 1);
}

}  // namespace

Prepared prepare(const Request& request, const std::string& engine_name, opencl::Runtime& runtime) {
  const auto shared = linear::request_of(request);
  Prepared made = linear::prepare<Programs>(shared, engine_name, runtime);
  made.programs = programs_of(shared, *made.engine, made.schedule);
  return made;
}

}  // namespace tessera::linear_cross_entropy

auto tessera::loss::HostTraits<tessera::linear_cross_entropy::Operator>::opencl()
    -> dispatch::Table<Request> {
  using namespace linear_cross_entropy;
  return opencl_rows<Operator, linear_cross_entropy::Prepared>(
      {.operands =
           [](const Request& request) { return linear::operands_of(linear::request_of(request)); },
       .refuses = refuses,
       .prepare = prepare,
       .knobs =
           [](const Request& request, const linear_cross_entropy::Prepared& prepared) {
             return linear::knobs_of(linear::request_of(request), *prepared.engine,
                                     prepared.schedule);
           },
       .kernels =
           [](const Request& request, const linear_cross_entropy::Prepared& prepared) {
             return kernels_of(linear::request_of(request), prepared.schedule, prepared.programs);
           },
       .minimum_workspace_bytes =
           [](const Request& request, const linear_cross_entropy::Prepared& prepared,
              const opencl::Runtime& runtime) {
             return linear::minimum_workspace_bytes(linear::request_of(request), prepared.shapes,
                                                    runtime.facts(), runtime.info());
           },
       .enqueue =
           [](opencl::Call& call, const Request& request,
              const linear_cross_entropy::Prepared& prepared) {
             const auto shared = linear::request_of(request);
             Run(call, shared, *prepared.engine, prepared.schedule, prepared.programs).enqueue();
           },
       .add_to_key = linear::add_to_key<Operator>,
       .cost = cost_of});
}
