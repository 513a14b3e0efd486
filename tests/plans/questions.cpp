// SPDX-License-Identifier: Apache-2.0
#include "tests/plans/questions.hpp"

#include <fmt/format.h>

#include <utility>

#include "host/linear_cross_entropy/request.hpp"
#include "host/linear_distillation/request.hpp"

namespace tessera::test {
namespace lce = linear_cross_entropy;
namespace distillation = linear_distillation;

namespace {

const char* name_of(WLayout layout) {
  return layout == WLayout::vh ? "vh" : layout == WLayout::hv ? "hv" : "strided";
}

const char* name_of(Targets targets) {
  return targets == Targets::labels ? "labels" : targets == Targets::pairs ? "pairs" : "dense";
}

View array(DType type, const Dims& extents, const Dims& strides = {}) {
  return View::host(nullptr, type, extents, strides);
}
MutableView output(DType type, const Dims& extents, const Dims& strides = {}) {
  return MutableView::host(nullptr, type, extents, strides);
}
template <class Operator, class Options>
operators::Call call_of(const Question& q, const Options& options, typename Operator::Inputs inputs,
                        const LossOptions& loss, std::int64_t workspace_bytes) {
  inputs.x = array(q.x, {q.b, q.h});
  inputs.w = array(q.w, {q.h, q.v}, matrix_layout(q.w_layout, q.h, q.v).strides);
  if (q.has_bias) inputs.bias = array(q.w, {q.v});
  if (!q.distills || q.alpha < 1.0f) {
    if (q.targets == Targets::labels) inputs.labels = array(DType::i32, {q.b});
    if (q.targets == Targets::dense) inputs.targets = array(q.x, {q.b, q.v});
    if (q.targets == Targets::pairs) {
      inputs.target_indices = array(DType::i32, {q.b, 4});
      inputs.target_probs = array(DType::f32, {q.b, 4});
    }
  }
  if (q.pass == Pass::backward) inputs.statistics = array(DType::f32, {q.b, 2});
  typename Operator::Outputs outputs;
  if (q.pass != Pass::backward) {
    outputs.loss = output(DType::f32, loss.reduction == Reduction::none ? Dims{q.b} : Dims{});
  }
  typename Operator::Gradients gradients;
  if (has_gradients(q.pass)) {
    gradients.accumulate = lce::Accumulate(q.adds);
    if (q.wants_x) gradients.grad_x = output(q.x, {q.b, q.h});
    if (q.wants_w) {
      gradients.grad_w =
          output(q.grad_w, {q.h, q.v}, matrix_layout(q.grad_w_layout, q.h, q.v).strides);
    }
    if (q.wants_bias) gradients.grad_bias = output(DType::f32, {q.v});
  }
  typename Operator::ExecutionOptions execution;
  if constexpr (requires { execution.gradient_filter_eps; }) execution.gradient_filter_eps = q.eps;
  execution.block_sizes = q.blocks;
  execution.knobs = q.knobs;
  if (q.dz_f32) execution.dz_dtype = DType::f32;
  if (workspace_bytes > 0) execution.workspace_bytes = workspace_bytes;
  return operators::bind<Operator>(q.pass, inputs, outputs, gradients, options, execution);
}

}  // namespace

Question draw_question(Draw& draw) {
  using Model = std::pair<std::int64_t, std::int64_t>;
  constexpr auto f32 = DType::f32, bf16 = DType::bf16, f16 = DType::f16;
  Question q;
  q.machine = &opencl::machines()[draw.number() % opencl::machines().size()];
  if (draw.happens(15)) q.allocation = draw.one_of({64, 256}) * (std::int64_t{1} << 20);
  q.distills = draw.happens(40);
  q.pass = draw.one_of({Pass::forward, Pass::backward, Pass::value_and_grad, Pass::value_and_grad});
  // Models (bench/shapes), and four that are tiny and odd.
  std::tie(q.h, q.v) = draw.one_of<Model>({{768, 50257},
                                           {2304, 256000},
                                           {3584, 256000},
                                           {2560, 262144},
                                           {4096, 128256},
                                           {4096, 151936},
                                           {7168, 129280},
                                           {2880, 201088},
                                           {384, 30522},
                                           {7, 50},
                                           {40, 1000},
                                           {333, 5001},
                                           {64, 1}});
  q.b = draw.one_of<std::int64_t>(
      {0, 1, 3, 8, 17, 64, 130, 512, 1000, 2048, 4096, 8192, 16384, 65536, 131072});
  if (4 * q.b * q.h > q.allocation) q.allocation = 0;
  q.x = draw.one_of({f32, bf16, bf16, f16});
  q.w = draw.happens(75) ? q.x : draw.one_of({f32, bf16, f16});
  q.w_layout = draw.one_of({WLayout::vh, WLayout::vh, WLayout::hv, WLayout::strided});
  q.grad_w = draw.happens(75) ? q.w : f32;
  q.grad_w_layout = draw.happens(75) ? q.w_layout : draw.one_of({WLayout::vh, WLayout::hv});
  q.has_bias = draw.happens(30);
  q.wants_x = draw.happens(85);
  q.wants_w = !q.wants_x || draw.happens(85);
  q.wants_bias = q.has_bias && draw.happens(70);
  q.adds = draw.happens(20);
  q.eps = !q.distills && draw.happens(12) ? 1e-3f : 0.0f;
  q.dz_f32 = draw.happens(10);
  q.targets = draw.one_of({Targets::labels, Targets::labels, Targets::labels, Targets::labels,
                           Targets::pairs, Targets::dense});
  q.reduction = draw.one_of({Reduction::mean, Reduction::mean, Reduction::none});
  q.smoothing = draw.happens(10) ? 0.1f : 0.0f;
  q.cap = draw.happens(15) ? 30.0f : 0.0f;
  if (draw.happens(10)) {
    q.blocks.emplace();
    q.blocks->b_block_size = draw.one_of({64, 256, 1024});
    q.blocks->h_block_size = draw.one_of({64, 512});
    q.blocks->v_block_size = draw.one_of({64, 256, 2048});
  }
  if (draw.happens(5)) q.knobs.push_back({"chunk_rows", draw.one_of({64, 256, 1024})});
  if (draw.happens(8)) q.knobs.push_back({"v_range", draw.one_of({64, 256, 1024, 8192})});
  // To find the least takes hundreds of plans.
  if (draw.happens(5) && q.b * q.v < std::int64_t{1} << 25) q.quarters = draw.one_of({4, 6, 16});
  q.engine = draw.number();
  q.teacher_h = draw.one_of({0, 0, 64, 1152, 4096, 8192});
  // Logits that no machine has room for are no question.
  if (q.teacher_h == 0 && q.b * q.v > std::int64_t{1} << 24) q.teacher_h = 2048;
  q.teacher = draw.happens(75) ? q.x : draw.one_of({f32, bf16, f16});
  q.teacher_layout = draw.one_of({WLayout::vh, WLayout::vh, WLayout::hv, WLayout::strided});
  q.divergence = draw.one_of({distillation::Divergence::forward_kl,
                              distillation::Divergence::reverse_kl, distillation::Divergence::jsd});
  q.alpha = draw.one_of({0.5f, 1.0f});
  q.has_terms = draw.happens(60);
  return q;
}

operators::Call call_of(const Question& q, std::int64_t workspace_bytes) {
  LossOptions loss;
  loss.reduction = q.reduction;
  loss.logit_soft_cap = q.cap;
  loss.label_smoothing = q.smoothing;
  if (!q.distills) return call_of<lce::Operator>(q, loss, {}, loss, workspace_bytes);
  distillation::Inputs teacher;
  if (q.teacher_h == 0) {
    teacher.teacher_logits = array(q.teacher, {q.b, q.v});
  } else {
    teacher.teacher_x = array(q.teacher, {q.b, q.teacher_h});
    teacher.teacher_w = array(q.teacher, {q.teacher_h, q.v},
                              matrix_layout(q.teacher_layout, q.teacher_h, q.v).strides);
  }
  if (q.pass == Pass::backward && q.has_terms) {
    teacher.divergence_statistics = array(DType::f32, {q.b, 5});
  }
  if (q.alpha == 1.0f) loss.label_smoothing = 0.0f;
  return call_of<distillation::Operator>(
      q, distillation::Options{.divergence = q.divergence, .alpha = q.alpha, .loss = loss}, teacher,
      loss, workspace_bytes);
}

std::string text(const std::vector<NamedValue>& list) {
  std::string all;
  for (const auto& [name, value] : list) {
    all += fmt::format("{}{}:{}", all.empty() ? "" : ",", name, value);
  }
  return all;
}

std::string text(const Question& q) {
  std::string line = fmt::format(
      "machine={}|allocation={}|operator={}|pass={}|b={}|h={}|v={}|x={}|w={},{}|bias={}|"
      "targets={}|reduction={}|smoothing={}|cap={}",
      q.machine->info.name, q.allocation,
      q.distills ? "linear_distillation" : "linear_cross_entropy", to_string(q.pass), q.b, q.h, q.v,
      to_string(q.x), to_string(q.w), name_of(q.w_layout), q.has_bias, name_of(q.targets),
      to_string(q.reduction), q.smoothing, q.cap);
  if (has_gradients(q.pass)) {
    line += fmt::format("|wants={}{}{}|grad_w={},{}|adds={}|eps={}|dz_f32={}", q.wants_x ? "x" : "",
                        q.wants_w ? "w" : "", q.wants_bias ? "b" : "", to_string(q.grad_w),
                        name_of(q.grad_w_layout), q.adds, q.eps, q.dz_f32);
  }
  if (q.distills) {
    line += fmt::format("|teacher={},{},{}|divergence={}|alpha={}|terms={}", q.teacher_h,
                        to_string(q.teacher), name_of(q.teacher_layout), to_string(q.divergence),
                        q.alpha, q.has_terms);
  }
  if (q.blocks) line += "|asked_blocks=" + text(to_named(*q.blocks));
  if (!q.knobs.empty()) line += "|asked_knobs=" + text(q.knobs);
  if (q.quarters > 0) line += fmt::format("|asked_quarters={}", q.quarters);
  return line;
}

}  // namespace tessera::test
