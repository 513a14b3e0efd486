// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/dispatch/host_views.hpp"
#include "host/linear_distillation/opencl/run.hpp"

/// The implementations `opencl.*`: what the table asks of them.
namespace tessera::linear_distillation {

// Kernels write the caller's rows word by word.
static_assert(sizeof(DivergenceSums) == 4 * SUM_FIELDS && SUM_MAX_U == 0 && SUM_MAX_V == 1 &&
                  SUM_U == 2 && SUM_V == 3 && SUM_CROSS == 4 && SUM_EXP_V == 5,
              "the order of DivergenceSums");

linear::Teacher teacher_of(const Request& r, const opencl::DeviceFacts& facts) {
  linear::Teacher t;
  t.given = true;
  t.columns = std::max<std::int64_t>(r.loss.v, 1);
  t.is_known = static_cast<bool>(r.inputs.divergence_statistics);
  t.looks_twice = !t.is_known && effective_divergence(r.options) == Divergence::jsd;
  t.sum_words = t.is_known ? 0 : SUM_FIELDS;
  t.row_words = TERM_FIELDS;
  const auto& in = r.inputs;
  if (in.teacher_logits) return t;
  t.is_layer = true;
  t.h = teacher_hidden(r);
  t.x = in.teacher_x.dtype();
  t.w = in.teacher_w.dtype();
  t.w_layout = linear::layout_of(in.teacher_w);
  t.columns = linear::columns_per_binding(in.teacher_w, r.loss.v, facts, "teacher_w");
  return t;
}

namespace {

class Opencl final : public linear::Opencl<Request, Programs> {
  Request own(const operators::Request& request) const override { return request_of(request); }

  engines::Operands operands(const operators::Request& request) const override {
    auto operands = linear::Opencl<Request, Programs>::operands(request);
    const auto r = request_of(request);
    // The gradient of a divergence has bounds of its own.
    if (operands.a == DType::f16 && has_gradients(r.loss.pass)) operands.more_f32 = true;
    const auto& in = r.inputs;
    for (const View* view : {&in.teacher_x, &in.teacher_w}) {
      if (*view && view->dtype() != operands.a) operands.more_f32 = true;
    }
    if (in.teacher_w) {
      operands.line_bytes = std::min(operands.line_bytes, linear::line_bytes(in.teacher_w));
    }
    return operands;
  }

  std::optional<std::string> own_refuses(const Request& request,
                                         const opencl::DeviceFacts& facts) const override {
    auto beyond = engines::beyond_32_bits({{"B", request.loss.b},
                                           {"H", hidden(request)},
                                           {"G", teacher_hidden(request)},
                                           {"V", request.loss.v}});
    if (beyond) return beyond;
    // As large as the logits, and not read in parts.
    const View& logits = request.inputs.teacher_logits;
    if (!logits || logits.is_device()) return std::nullopt;
    const std::int64_t bytes = dispatch::footprint_bytes(logits);
    if (bytes <= facts.max_allocation_bytes) return std::nullopt;
    return fmt::format(
        "teacher_logits reaches over {} bytes, more than the device's maximum allocation of {}; "
        "give fewer rows at a time, or use eigen",
        bytes, facts.max_allocation_bytes);
  }

  linear::Teacher teacher(const Request& request, const opencl::DeviceFacts& facts) const override {
    return teacher_of(request, facts);
  }

  Programs own_programs(const Request& request, const engines::Engine& engine,
                        const linear::Schedule& schedule) const override {
    return programs_of(request, engine, schedule);
  }

  std::vector<operators::Kernel> own_kernels(const Request& request,
                                             const Prepared& prepared) const override {
    return kernels_of(request, prepared);
  }

  void own_enqueue(opencl::Call& call, const Request& request,
                   const Prepared& prepared) const override {
    Run(call, request, prepared).enqueue();
  }

  /// How often the schedule forms each logit: for each look and for gradients, or once.
  CostEstimate own_cost(const Request& request, const Prepared& prepared) const override {
    const auto& teacher = prepared.schedule.teacher;
    const std::int64_t looks = (teacher.is_known      ? 0
                                : teacher.looks_twice ? 2
                                                      : 1) +
                               (has_gradients(request.loss.pass) ? 1 : 0);
    return linear_distillation::cost(request, prepared.schedule.keeps_logits ? 1 : looks);
  }
};

}  // namespace

dispatch::Table opencl_implementations() {
  return operators::opencl_rows(std::make_shared<Opencl>());
}

}  // namespace tessera::linear_distillation
