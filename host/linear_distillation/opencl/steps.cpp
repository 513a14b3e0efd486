// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/dispatch/host_views.hpp"
#include "host/linear_distillation/opencl/run.hpp"
#include "host/loss/opencl_rows.hpp"
#include "host/opencl/specialise.hpp"

// The steps of a teacher beside those of the student, and the programs that they launch.
namespace tessera::linear_distillation {

using schedule::Phase;
using schedule::Results;
using schedule::Step;
using schedule::Steps;
using schedule::When;

// Kernels write the caller's rows word by word.
static_assert(sizeof(DivergenceSums) == 4 * SUM_FIELDS && SUM_MAX_U == 0 && SUM_MAX_V == 1 &&
                  SUM_U == 2 && SUM_V == 3 && SUM_CROSS == 4 && SUM_EXP_V == 5,
              "the order of DivergenceSums");

namespace {

bool writes_own_rows(const Request& r) {
  const auto& out = r.outputs;
  return out.divergence || out.target_entropy || out.divergence_statistics || r.loss.own_partial;
}

bool looks_twice(const Request& r) { return effective_divergence(r.options) == Divergence::jsd; }

}  // namespace

int Problem::looks() const {
  if (is_known()) return linear::Problem::looks();
  return looks_twice(own_) ? 2 : 1;
}

std::int64_t Problem::sum_words() const { return is_known() ? 0 : SUM_FIELDS; }

std::int64_t Problem::bound_columns(const opencl::DeviceFacts& facts) const {
  const std::int64_t columns = linear::Problem::bound_columns(facts);
  const View& w = own_.inputs.teacher_w;
  return std::min(columns, linear::columns_per_binding(w, r_.loss.v, facts, "teacher_w"));
}

void Problem::plan_for(const opencl::DeviceFacts& facts) {
  linear::Problem::plan_for(facts);
  if (own_.inputs.teacher_logits) return;
  const auto& given = r_.execution.block_sizes;
  h_block_ = given ? given->h_block_size : engine().heuristic(product(base)).k;
}

void Problem::add_products(Steps& steps, const Schedule& s) const {
  if (!own_.inputs.teacher_logits) steps.products.push_back({product(s)});
}

engines::Product Problem::product(const Schedule& s) const {
  const auto& in = own_.inputs;
  return {
      .use = engines::Use::visit,
      .m = s.blocks.m,
      .n = s.at.rows,
      .k = teacher_hidden(own_),
      .a = {in.teacher_w.dtype(), static_cast<engines::Layout>(linear::layout_of(in.teacher_w))},
      .b = {in.teacher_x.dtype()},
      .k_block = h_block_};
}

void Problem::add_pack(linear::StepList& list, Phase phase, unsigned loops) const {
  linear::Problem::add_pack(list, phase, loops);
  if (own_.inputs.teacher_logits) return;
  list.pack(pack_teacher, phase, loops, region::packed, linear::own_products);
}

/// Logits of both against a range; each layer's launch moves `stored` bytes too.
void Problem::form_both(linear::StepList& list, int student, Phase phase, const Steps::Kind& range,
                        double stored) const {
  const Schedule& s = list.s;
  const unsigned inside = schedule::of_rows | schedule::of_columns;
  Step* step = nullptr;
  if (own_.inputs.teacher_logits) {
    step = &list.copy(take_logits, phase, inside, 2.0 * stored, range);
  } else {
    step = &list.form(teacher, "teacher", phase, range, linear::own_products, stored);
    // One region for its looks and gradients, which have other slices.
    const std::int64_t strips = engines::ceil_div(s.at.columns, engine().strip());
    step->scratch_parts = {std::max(list.steps.slices, strips), 0};
  }
  if (s.results != Results::output) {
    step->regions[0] = {region::logits, s.at.rows * list.dz_words};
  }
  const char* name = phase == Phase::main ? "gradient" : "forward";
  list.form(student, name, phase, range, linear::of_logits, stored).regions[0] = {
      linear::region::dz, s.at.rows * list.dz_words};
}

void Problem::add_look(linear::StepList& list, const Steps::Kind& range) const {
  const Schedule& s = list.s;
  const unsigned inside = schedule::of_rows | schedule::of_columns;
  const double logits = list.logits_bytes(range, s.at.rows) / 2;
  const double stored = s.keeps_results() ? logits : 2.0 * list.caches.missed_next(logits);
  const int student = r_.loss.wants_values() ? int{linear::forward} : int{again};
  form_both(list, student, Phase::look, range, stored);
  if (is_known()) return;
  // Counted with the logits that they read.
  const auto sums = [&](int kernel, Phase phase) {
    Step& step = list.copy(kernel, phase, inside, 0.0, range);
    step.is_counted = false;
    step.regions[0] = {region::sums, list.steps.slices * SUM_FIELDS * s.at.rows};
  };
  sums(divergence_sums, Phase::look);
  if (!looks_twice(own_)) return;
  if (!s.keeps_results()) form_both(list, again, Phase::look_again, range, stored);
  sums(mixture_sums, Phase::look_again);
}

void Problem::add_merge(linear::StepList& list) const {
  const auto last = [&](int kernel, Phase phase, unsigned loops) -> Step& {
    Step& step = list.small(kernel, phase, loops);
    step.when = When::last;
    return step;
  };
  const bool twice = !is_known() && looks_twice(own_);
  if (!is_known()) {
    last(merge_divergence, Phase::look, schedule::of_rows).regions[0] = {
        region::terms, all_rows(list.s) * TERM_FIELDS};
    if (twice) last(merge_mixture, Phase::look_again, schedule::of_rows);
    if (writes_own_rows(own_)) {
      last(excluded_divergence, twice ? Phase::look_again : Phase::look, schedule::once);
    }
  }
  add_statistics(list, twice ? Phase::look_again : Phase::look);
}

void Problem::add_gradient(linear::StepList& list, const Steps::Kind& range,
                           double dz_bytes) const {
  const Schedule& s = list.s;
  double logits = list.logits_bytes(range, held_rows(s));
  if (is_known() && !list.has(take_terms)) {
    list.small(take_terms, Phase::main, schedule::once).regions[0] = {region::terms,
                                                                      all_rows(s) * TERM_FIELDS};
  }
  if (!s.keeps_results()) {
    logits = list.caches.missed_next(logits);
    form_both(list, again, Phase::main, range, logits / 2);
  }
  list.copy(linear::gradient, Phase::main,
            schedule::of_rows | schedule::of_columns | schedule::of_depth, logits + dz_bytes,
            range);
}

std::pair<opencl::Specialisation, const char*> Problem::program(const Step& step,
                                                                const Schedule& s) const {
  const auto& in = own_.inputs;
  const auto& o = own_.options;
  const std::string kept = linear::kept_options(*this, s);
  const std::string divergence =
      fmt::format(" -DDIVERGENCE={}", static_cast<int>(effective_divergence(o)));
  const auto made = [&](const char* file, const std::string& options) {
    return opencl::Specialisation{file, engine().options() + options, engine().folder()};
  };
  const auto formed = [&](const std::string& layer) {
    auto program =
        made("linear/forward.cl", engine().options(s.steps.product(step).product, "LOGITS") +
                                      layer + kept + " -DKEEP_LOGITS=1 -DSTATISTICS=0");
    program.patched_items = engine().patched_items();
    return program;
  };
  const auto rows = [&](const char* name) {
    return std::pair{opencl::Specialisation{"linear_distillation/rows.cl", divergence}, name};
  };
  switch (step.kernel) {
    case again:
      return {formed(linear::layer_options(in.w, in.bias, o.loss.logit_soft_cap)), "forward"};
    case teacher:
      return {
          formed(linear::layer_options(in.teacher_w, in.teacher_bias, o.teacher_logit_soft_cap)),
          "forward"};
    case pack_teacher:
      return {made("linear/pack_x.cl", engine().options(s.steps.product(step).product, "PACK") +
                                           linear::pack_options(in.teacher_x)),
              "pack_rows"};
    case take_logits:
      return {
          made("linear_distillation/take_logits.cl",
               kept + fmt::format(" {} -DTEACHER_CONTIGUOUS={} -DSOFT_CAP={}",
                                  opencl::type_option("TEACHER_TYPE", in.teacher_logits.dtype()),
                                  in.teacher_logits.strides().back() == 1 ? 1 : 0,
                                  o.teacher_logit_soft_cap != 0.0f ? 1 : 0)),
          "take_logits"};
    case divergence_sums:
    case mixture_sums:
      return {made("linear_distillation/sums.cl", kept + divergence),
              step.kernel == divergence_sums ? "divergence_sums" : "mixture_sums"};
    case linear::gradient:
      return {made("linear_distillation/gradient.cl",
                   kept + divergence + linear::row_options(r_) + linear::dz_options(*this, s) +
                       fmt::format(" -DSOFT_CAP={}", o.loss.logit_soft_cap != 0.0f ? 1 : 0)),
              "distill_gradient"};
    case merge_divergence:
      return rows("merge_divergence");
    case merge_mixture:
      return rows("merge_mixture");
    case take_terms:
      return rows("take_terms");
    case excluded_divergence:
      return rows("excluded_divergence");
    default:
      return linear::Problem::program(step, s);
  }
}

engines::Operands Problem::operands() const {
  auto operands = linear::Problem::operands();
  const auto& in = own_.inputs;
  // The gradient of a divergence has bounds of its own.
  if (operands.a == DType::f16 && has_gradients(r_.loss.pass))
    operands.others.push_back(DType::f32);
  for (const View* view : {&in.teacher_x, &in.teacher_w}) {
    if (*view) operands.others.push_back(view->dtype());
  }
  if (in.teacher_w) {
    operands.line_bytes = std::min(operands.line_bytes, linear::line_bytes(in.teacher_w));
  }
  return operands;
}

std::optional<std::string> Problem::refuses(const opencl::DeviceFacts& facts) const {
  auto beyond = engines::beyond_32_bits(
      {{"B", own_.loss.b}, {"H", hidden(own_)}, {"G", teacher_hidden(own_)}, {"V", own_.loss.v}});
  if (beyond) return beyond;
  // They are as large as the logits, and not read in parts.
  const View& logits = own_.inputs.teacher_logits;
  if (!logits || logits.is_device()) return std::nullopt;
  const std::int64_t bytes = dispatch::footprint_bytes(logits);
  if (bytes <= facts.max_allocation_bytes) return std::nullopt;
  return fmt::format(
      "teacher_logits reaches over {} bytes, more than the device's maximum allocation of {}; "
      "give fewer rows at a time, or use eigen",
      bytes, facts.max_allocation_bytes);
}

/// The schedule forms each logit for each look and for gradients, or once.
CostEstimate Problem::cost(const Schedule& s) const {
  const std::int64_t formed = looks() + (has_gradients(r_.loss.pass) ? 1 : 0);
  return linear_distillation::cost(own_, s.keeps_results() ? 1 : formed);
}

Request Problem::asked(const operators::Request& request) { return request_of(request); }

dispatch::Table opencl_implementations() {
  return operators::opencl_rows(std::make_shared<linear::OpenclOf<Problem>>());
}

}  // namespace tessera::linear_distillation
