// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/dispatch/knobs.hpp"
#include "host/engines/gates.hpp"
#include "host/loss/opencl_rows.hpp"
#include "host/opencl/specialise.hpp"
#include "host/operators/opencl_operator.hpp"
#include "host/softmax_cross_entropy/opencl_run.hpp"
#include "softmax_cross_entropy/arguments.h"

namespace tessera::softmax_cross_entropy {
namespace {

/// Exponentials of a row that a CPU keeps from one pass to the next: half of the local memory,
/// which CPU drivers report as large as a core's own cache.
std::int64_t kept_count(const opencl::DeviceFacts& facts) {
  constexpr std::int64_t most = 128 * 1024;  // half of the caches of current server cores
  return std::clamp<std::int64_t>(facts.local_memory_bytes / 2 / 4, 16, most) / 16 * 16;
}

/// The engine with the longest vectors of which the caller's slices, if there are any, have whole
/// ones, so that the rule for them is the same whatever the device's width.
std::shared_ptr<const engines::Engine> engine_for(const Request& r, const std::string& family,
                                                  const opencl::DeviceFacts& facts,
                                                  std::vector<std::string>& notes) {
  const auto shapes = engines::shapes_with(engines::engine_entry(family), facts,
                                           {.a = r.inputs.logits.dtype(), .rows = true},
                                           r.execution.knobs, nullptr, notes);
  if (!r.execution.block_sizes) return shapes.front();
  for (const auto& engine : shapes) {
    if (r.execution.block_sizes->v_block_size % engine->row_pass().lanes == 0) return engine;
  }
  return shapes.back();
}

Programs programs_of(const Request& r, const engines::Engine& engine,
                     const opencl::DeviceFacts& facts) {
  const auto contiguous = [](const View& view) {
    return view.strides().back() == 1 || view.extents().back() == 1 ? 1 : 0;
  };
  const auto& o = r.loss.options;
  std::string shared = fmt::format(
      "-DLANES={} -DGROUP={} {} -DV_CONTIGUOUS={} -DSCALED={} -DSOFT_CAP={} "
      "-DHAS_CLASS_WEIGHT={}",
      engine.row_pass().lanes, engine.row_pass().items,
      opencl::type_option("LOGITS_TYPE", r.inputs.logits.dtype()), contiguous(r.inputs.logits),
      o.logit_scale != 1.0f ? 1 : 0, o.logit_soft_cap != 0.0f ? 1 : 0, r.loss.class_weight ? 1 : 0);
  if (r.loss.class_weight) {
    shared.append(" ").append(opencl::type_option("CLASS_TYPE", r.loss.class_weight.dtype()));
  }
  // Enough for every kernel of the operator (docs/gpu_code.csv).
  constexpr std::int64_t most_registers = 176;
  shared += engines::register_option(facts, most_registers, engine.row_pass().items);
  shared += loss::target_options(r.loss);
  if (r.loss.targets) {
    shared.append(" -DTARGETS_CONTIGUOUS=").append(std::to_string(contiguous(r.loss.targets)));
  }
  Programs p;
  p.forward = {"softmax_cross_entropy/forward.cl", shared + loss::statistics_options(r.loss)};
  if (r.gradients.grad_logits) {
    const auto options = fmt::format(
        "{} {} -DOUT_CONTIGUOUS={} -DCLASS_GRADIENT={}", shared,
        opencl::type_option("OUT_TYPE", r.gradients.grad_logits.dtype()),
        contiguous(r.gradients.grad_logits), o.label_smoothing != 0.0f || r.loss.targets ? 1 : 0);
    p.gradient = {"softmax_cross_entropy/gradient.cl", options};
    p.fused = {"softmax_cross_entropy/value_and_grad.cl",
               fmt::format("{}{} -DKEPT_COUNT={}", options, loss::statistics_options(r.loss),
                           kept_count(facts))};
  }
  return p;
}

using Prepared = operators::PreparedOf<Schedule, Programs>;

std::vector<NamedValue> knobs_of(const Prepared& prepared) {
  auto knobs = engines::row_knobs(*prepared.engine);
  knobs.push_back({"slices", prepared.schedule.slices});
  knobs.push_back({"chunk_rows", prepared.schedule.chunk_rows});
  return knobs;
}

class Opencl final : public operators::OpenclOperator {
  std::vector<std::int64_t> multiples(const engines::Engine& engine) const override {
    return {1, engine.rule().m_multiple};
  }
  engines::Operands operands(const operators::Request& request) const override {
    return {.a = request_of(request).inputs.logits.dtype(), .rows = true};
  }
  std::optional<std::string> refuses(const operators::Request& request, const std::string&,
                                     const opencl::DeviceFacts& facts) const override {
    const auto& r = loss::loss_request(request);
    auto reason = loss::why_unsupported(r, facts);
    return reason ? reason : engines::beyond_32_bits({{"B", r.b}, {"V", r.v}});
  }
  std::shared_ptr<operators::Prepared> prepare(const operators::Request& request,
                                               const std::string& engine_name,
                                               opencl::Runtime& runtime) const override {
    const auto r = request_of(request);
    auto made = std::make_shared<Prepared>();
    made->engine = engine_for(r, engine_name, runtime.facts(), made->notes);
    made->schedule = make_schedule(r, *made->engine, runtime.facts());
    dispatch::check_knobs(r.execution.knobs, knobs_of(*made), "opencl." + engine_name);
    made->programs = programs_of(r, *made->engine, runtime.facts());
    return made;
  }
  std::vector<NamedValue> knobs(const operators::Request&,
                                const operators::Prepared& prepared) const override {
    return knobs_of(own(prepared));
  }
  std::vector<operators::Kernel> kernels(const operators::Request& request,
                                         const operators::Prepared& prepared) const override {
    const auto r = request_of(request);
    const auto& [forward, gradient, fused] = own(prepared).programs;
    const bool in_one = own(prepared).schedule.fused;
    auto kernels = loss::loss_kernels_of(r.loss, own(prepared).schedule.chunk_rows);
    if (in_one) kernels.emplace_back(fused, "value_and_grad");
    if (!in_one && r.loss.wants_values()) kernels.emplace_back(forward, "forward");
    if (!r.gradients.grad_logits) return kernels;
    if (!in_one) kernels.emplace_back(gradient, "gradient");
    kernels.emplace_back(in_one ? fused : gradient, "gradient_excluded");
    return kernels;
  }
  std::int64_t minimum_workspace_bytes(const operators::Request& request,
                                       const operators::Prepared& prepared,
                                       const opencl::Runtime&) const override {
    return scratch_words(request_of(request), *prepared.engine, 1, own(prepared).schedule.slices) *
           4;
  }
  std::vector<ConsideredSchedule> considered(const operators::Request& request,
                                             const operators::Prepared& prepared,
                                             const opencl::Runtime&) const override {
    return explain(request_of(request), *prepared.engine, own(prepared).schedule);
  }
  void enqueue(opencl::Call& call, const operators::Request& request,
               const operators::Prepared& prepared) const override {
    softmax_cross_entropy::enqueue(call, request_of(request), *prepared.engine,
                                   own(prepared).schedule, own(prepared).programs);
  }
  CostEstimate cost(const operators::Request& request, const operators::Prepared&) const override {
    return softmax_cross_entropy::cost(request_of(request));
  }

  static const Prepared& own(const operators::Prepared& prepared) {
    return static_cast<const Prepared&>(prepared);
  }
};

}  // namespace

dispatch::Table opencl_implementations() {
  return operators::opencl_rows(std::make_shared<Opencl>());
}

}  // namespace tessera::softmax_cross_entropy
