// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/dispatch/host_views.hpp"
#include "host/linear_distillation/opencl/run.hpp"

/// The implementations `opencl.*`: what the table asks of them.
namespace tessera::linear_distillation {

// Kernels write the caller's rows word by word.
static_assert(sizeof(DivergenceSums) == 4 * SUM_FIELDS && SUM_MAX_U == 0 && SUM_MAX_V == 1 &&
                  SUM_U == 2 && SUM_V == 3 && SUM_CROSS == 4 && SUM_EXP_V == 5,
              "the order of DivergenceSums");

namespace {

std::optional<std::string> refuses(const Request& request, const opencl::DeviceFacts& facts) {
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
      "teacher_logits reaches over {} bytes, more than the device's maximum allocation of {}; give "
      "fewer rows at a time, or use eigen",
      bytes, facts.max_allocation_bytes);
}

/// What the schedule has to know of the teacher.
linear::Teacher teacher_of(const Request& r, const opencl::DeviceFacts& facts) {
  linear::Teacher t;
  t.given = true;
  t.columns = std::max<std::int64_t>(r.loss.v, 1);
  t.is_known = static_cast<bool>(r.inputs.divergence_statistics);
  t.looks_twice = !t.is_known && effective_divergence(r.options) == Divergence::jsd;
  t.sum_words = t.is_known ? 0 : SUM_FIELDS;
  t.row_words = TERM_FIELDS;
  const Inputs& in = r.inputs;
  if (in.teacher_logits) return t;
  t.is_layer = true;
  t.h = teacher_hidden(r);
  t.x = in.teacher_x.dtype();
  t.w = in.teacher_w.dtype();
  t.w_layout = linear::layout_of(in.teacher_w);
  t.columns = linear::columns_per_binding(in.teacher_w, r.loss.v, facts, "teacher_w");
  return t;
}

Prepared prepare(const Request& request, const std::string& engine_name, opencl::Runtime& runtime) {
  const auto student = linear::request_of(request);
  Prepared made = linear::prepare<Programs>(student, engine_name, runtime,
                                            teacher_of(request, runtime.facts()));
  made.programs = programs_of(request, student, *made.engine, made.schedule);
  return made;
}

/// How often the schedule forms each logit: for each look and for gradients, or once.
CostEstimate cost_of(const Request& request, const Prepared& prepared) {
  const auto& teacher = prepared.schedule.teacher;
  const std::int64_t looks = (teacher.is_known      ? 0
                              : teacher.looks_twice ? 2
                                                    : 1) +
                             (has_gradients(request.loss.pass) ? 1 : 0);
  return cost(request, prepared.schedule.keeps_logits ? 1 : looks);
}

}  // namespace
}  // namespace tessera::linear_distillation

auto tessera::loss::HostTraits<tessera::linear_distillation::Operator>::opencl()
    -> dispatch::Table<Request> {
  using namespace linear_distillation;
  return opencl_rows<Operator, linear_distillation::Prepared>(
      {.operands =
           [](const Request& request) { return linear::operands_of(linear::request_of(request)); },
       .refuses = refuses,
       .prepare = prepare,
       .knobs =
           [](const Request& request, const linear_distillation::Prepared& prepared) {
             return linear::knobs_of(linear::request_of(request), *prepared.engine,
                                     prepared.schedule);
           },
       .kernels = kernels_of,
       .minimum_workspace_bytes =
           [](const Request& request, const linear_distillation::Prepared& prepared,
              const opencl::Runtime& runtime) {
             return linear::minimum_workspace_bytes(linear::request_of(request), prepared.shapes,
                                                    runtime.facts(), runtime.info(),
                                                    teacher_of(request, runtime.facts()));
           },
       .enqueue =
           [](opencl::Call& call, const Request& request,
              const linear_distillation::Prepared& prepared) {
             const auto student = linear::request_of(request);
             Run(call, request, student, prepared).enqueue();
           },
       .add_to_key = linear::add_to_key<Operator>,
       .cost = cost_of});
}
