// SPDX-License-Identifier: Apache-2.0
#include "host/loss/reference.hpp"

#include "host/linear_distillation/request.hpp"

namespace tessera::linear_distillation {
namespace {

std::optional<std::string> refuses(const Request& request) {
  auto reason = loss::layer_refusal(request.loss, hidden(request));
  if (reason) return reason;
  reason = loss::layer_refusal(request.loss, teacher_hidden(request));
  return reason ? "of the teacher: " + *reason : reason;
}

std::int64_t workspace_bytes(const Request& request) {
  const std::int64_t b = request.loss.b, v = request.loss.v;
  const std::int64_t h = hidden(request), g = teacher_hidden(request);
  // x twice (rows that do not count are cleared in a copy), w and the final logits, of both.
  std::int64_t elements = 2 * b * (h + g) + (h + g) * v + 3 * b * v;
  if (has_gradients(request.loss.pass)) elements += b * v + b * h + h * v + v;
  if (request.loss.targets) elements += b * v;
  return elements * static_cast<std::int64_t>(sizeof(double));
}

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

void read(const Request& request, dispatch::HostViews& views, oracle::Problem& problem) {
  const Inputs& in = request.inputs;
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

}  // namespace

dispatch::Implementation<Request> reference_implementation() {
  return loss::reference_row<Operator>(
      {.description = "textbook, in double, with the logits materialised; B * V up to 2^26",
       .refuses = refuses,
       .workspace_bytes = workspace_bytes,
       .read = read,
       .gradients = {&oracle::Gradients::grad_x, &oracle::Gradients::grad_w,
                     &oracle::Gradients::grad_bias},
       .own_outputs = {&oracle::Values::divergence, &oracle::Values::target_entropy,
                       &oracle::Values::divergence_statistics},
       .own_partial = &oracle::Values::divergence_sums});
}

}  // namespace tessera::linear_distillation
