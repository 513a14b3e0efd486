// SPDX-License-Identifier: Apache-2.0
#include "host/loss/reference.hpp"

#include "host/linear_distillation/request.hpp"

namespace tessera::linear_distillation {
namespace {

oracle::Divergence of(Divergence divergence) {
  switch (divergence) {
    case Divergence::reverse_kl:
      return oracle::Divergence::reverse_kl;
    case Divergence::jsd:
      return oracle::Divergence::jsd;
    default:
      return oracle::Divergence::forward_kl;
  }
}

class Textbook final : public loss::Reference {
 public:
  Textbook()
      : loss::Reference(
            "textbook, in double, with the logits materialised; B * V up to 2^26",
            {.gradients = {&oracle::Gradients::grad_x, &oracle::Gradients::grad_w,
                           &oracle::Gradients::grad_bias},
             .own_outputs = {&oracle::Values::divergence, &oracle::Values::target_entropy,
                             &oracle::Values::divergence_statistics},
             .own_partial = &oracle::Values::divergence_sums}) {}

 private:
  std::optional<std::string> refuses(const loss::LossRequest& checked) const override {
    const auto request = request_of(checked);
    auto reason = loss::layer_refusal(checked, hidden(request));
    if (reason) return reason;
    reason = loss::layer_refusal(checked, teacher_hidden(request));
    return reason ? "of the teacher: " + *reason : reason;
  }

  std::int64_t workspace_bytes(const loss::LossRequest& checked) const override {
    const auto request = request_of(checked);
    const std::int64_t b = checked.b, v = checked.v;
    const std::int64_t h = hidden(request), g = teacher_hidden(request);
    // x twice (rows that do not count are cleared in a copy), w and the final logits, of both.
    std::int64_t elements = 2 * b * (h + g) + (h + g) * v + 3 * b * v;
    if (has_gradients(checked.pass)) elements += b * v + b * h + h * v + v;
    if (checked.targets) elements += b * v;
    return elements * static_cast<std::int64_t>(sizeof(double));
  }

  void read(const loss::LossRequest& checked, dispatch::HostViews& views,
            oracle::Problem& problem) const override {
    const auto request = request_of(checked);
    const auto& in = request.inputs;
    problem.h = hidden(request);
    loss::read_layer(views, in.x, in.w, in.bias, problem.h, problem,
                     {problem.x, problem.w, problem.bias});
    const Options& o = request.options;
    oracle::Distillation& d = problem.distillation;
    d.given = true;
    d.divergence = of(o.divergence);
    d.beta = static_cast<double>(o.beta);
    d.temperature = static_cast<double>(o.temperature);
    d.alpha = static_cast<double>(o.alpha);
    d.logit_scale = static_cast<double>(o.teacher_logit_scale);
    d.logit_soft_cap = static_cast<double>(o.teacher_logit_soft_cap);
    if (in.divergence_statistics) {
      problem.divergence_statistics =
          loss::read_matrix(views.read(in.divergence_statistics), problem.b, 5);
    }
    if (in.teacher_logits) {
      problem.teacher_logits =
          loss::read_matrix(views.read(in.teacher_logits), problem.b, problem.v, &problem);
      return;
    }
    problem.teacher_h = teacher_hidden(request);
    loss::read_layer(views, in.teacher_x, in.teacher_w, in.teacher_bias, problem.teacher_h, problem,
                     {problem.teacher_x, problem.teacher_w, problem.teacher_bias});
  }

  CostEstimate cost(ContextState&, const dispatch::Request& request) const override {
    return linear_distillation::cost(request_of(request), 1);
  }
};

}  // namespace

std::unique_ptr<dispatch::Implementation> reference_implementation() {
  return std::make_unique<Textbook>();
}

}  // namespace tessera::linear_distillation
