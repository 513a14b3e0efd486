// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string_view>

#include "host/linear_distillation/opencl/run.hpp"
#include "host/opencl/specialise.hpp"

namespace tessera::linear_distillation {

std::vector<opencl::Specialisation*> Programs::all() {
  auto list = student.all();
  for (auto* program : {&again, &teacher, &pack_teacher, &take_logits, &sums, &gradient, &rows}) {
    list.push_back(program);
  }
  return list;
}

Programs programs_of(const Request& r, const engines::Engine& engine, const linear::Schedule& s) {
  const auto& student = r.student;
  const auto& in = r.inputs;
  const std::string shape = engine.options();
  const std::string kept = linear::kept_options(student, engine, s);
  const std::string divergence =
      fmt::format(" -DDIVERGENCE={}", static_cast<int>(effective_divergence(r.options)));
  const auto formed = [&](const engines::Product& product, const std::string& layer) {
    return opencl::Specialisation{"linear/forward.cl", shape + engine.options(product, "LOGITS") +
                                                           layer + kept +
                                                           " -DKEEP_LOGITS=1 -DSTATISTICS=0"};
  };
  const float cap = r.options.teacher_logit_soft_cap;

  Programs p;
  p.student = linear::programs_of(student, engine, s, loss::statistics_options(r.loss));
  p.again = formed(linear::logits_product(student, s),
                   linear::layer_options(in.w.dtype(), linear::layout_of(in.w), in.bias,
                                         r.options.loss.logit_soft_cap));
  if (in.teacher_logits) {
    p.take_logits = {
        "linear_distillation/take_logits.cl",
        shape + kept +
            fmt::format(" {} -DTEACHER_CONTIGUOUS={} -DSOFT_CAP={}",
                        opencl::type_option("TEACHER_TYPE", in.teacher_logits.dtype()),
                        in.teacher_logits.strides().back() == 1 ? 1 : 0, cap != 0.0f ? 1 : 0)};
  } else {
    const auto product = linear::teacher_product(s);
    p.teacher = formed(product, linear::layer_options(in.teacher_w.dtype(), s.teacher.w_layout,
                                                      in.teacher_bias, cap));
    p.pack_teacher = {"linear/pack_x.cl",
                      shape + engine.options(product, "PACK") + linear::pack_options(in.teacher_x)};
  }
  p.sums = {"linear_distillation/sums.cl", shape + kept + divergence};
  p.gradient = {"linear_distillation/gradient.cl",
                shape + kept + divergence + linear::row_options(student) +
                    linear::dz_options(student, engine, s) +
                    fmt::format(" -DSOFT_CAP={}", r.options.loss.logit_soft_cap != 0.0f ? 1 : 0)};
  p.rows = {"linear_distillation/rows.cl", divergence};
  for (auto* program :
       {&p.again, &p.teacher, &p.pack_teacher, &p.take_logits, &p.sums, &p.gradient}) {
    program->engine = engine.folder();
  }
  for (auto* program : {&p.again, &p.teacher}) program->patched_items = engine.patched_items();
  return p;
}

bool writes_own_rows(const Request& r) {
  const auto& out = r.outputs;
  return out.divergence || out.target_entropy || out.divergence_statistics || r.loss.own_partial;
}

std::vector<operators::Kernel> kernels_of(const Request& r, const Prepared& prepared) {
  const auto& p = prepared.programs;
  auto list = linear::kernels_of(r.student, prepared.schedule, prepared.programs.student);
  if (!r.loss.wants_values() || !prepared.schedule.keeps_logits) {
    list.emplace_back(p.again, "forward");
  }
  if (r.inputs.teacher_logits) {
    list.emplace_back(p.take_logits, "take_logits");
  } else {
    list.emplace_back(p.pack_teacher, "pack_rows");
    list.emplace_back(p.teacher, "forward");
  }
  if (prepared.schedule.teacher.is_known) {
    list.emplace_back(p.rows, "take_terms");
  } else {
    list.emplace_back(p.sums, "divergence_sums");
    list.emplace_back(p.rows, "merge_divergence");
  }
  if (prepared.schedule.teacher.looks_twice) {
    list.emplace_back(p.sums, "mixture_sums");
    list.emplace_back(p.rows, "merge_mixture");
  }
  if (writes_own_rows(r)) list.emplace_back(p.rows, "excluded_divergence");
  if (has_gradients(r.loss.pass)) list.emplace_back(p.gradient, "distill_gradient");
  return list;
}

}  // namespace tessera::linear_distillation
