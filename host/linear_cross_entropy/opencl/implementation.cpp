// SPDX-License-Identifier: Apache-2.0
#include "host/linear/opencl/prepare.hpp"
#include "host/linear_cross_entropy/opencl/run.hpp"
#include "host/linear_cross_entropy/request.hpp"

/// The implementations `opencl.*`: what the table asks of them.
namespace tessera::linear_cross_entropy {
namespace {

class Opencl final : public linear::Opencl<Request, Programs> {
  Request own(const operators::Request& request) const override { return request_of(request); }

  std::optional<std::string> own_refuses(const Request& request,
                                         const opencl::DeviceFacts&) const override {
    return engines::beyond_32_bits(
        {{"B", request.loss.b}, {"H", hidden(request)}, {"V", request.loss.v}});
  }

  Programs own_programs(const Request& request, const engines::Engine& engine,
                        const linear::Schedule& schedule) const override {
    return programs_of(request, engine, schedule);
  }

  std::vector<operators::Kernel> own_kernels(const Request& request,
                                             const Prepared& prepared) const override {
    return kernels_of(request, prepared.schedule, prepared.programs);
  }

  void own_enqueue(opencl::Call& call, const Request& request,
                   const Prepared& prepared) const override {
    Run(call, request, *prepared.engine, prepared.schedule, prepared.programs).enqueue();
  }

  CostEstimate own_cost(const Request& request, const Prepared& prepared) const override {
    const auto& schedule = prepared.schedule;
    // With the vocabulary outside, the values of all rows are known before the first gradient.
    const bool twice = schedule.v_outer && !schedule.keeps_logits;
    return linear_cross_entropy::cost(request, schedule.blocks,
                                      twice && request.loss.pass == Pass::value_and_grad ? 2 : 1);
  }
};

}  // namespace

dispatch::Table opencl_implementations() {
  return operators::opencl_rows(std::make_shared<Opencl>());
}

}  // namespace tessera::linear_cross_entropy
