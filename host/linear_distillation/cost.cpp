// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/arguments/bytes.hpp"
#include "host/linear_distillation/request.hpp"

namespace tessera::linear_distillation {

CostEstimate cost(const Request& r, std::int64_t formed) {
  using arguments::saturating_product;
  using arguments::saturating_sum;
  const auto& g = r.student.gradients;
  const std::int64_t logits = saturating_product(r.loss.b, r.loss.v);
  const auto product = [&](std::int64_t h) {
    return saturating_product(saturating_product(2, logits), h);
  };
  const std::int64_t both = saturating_sum(product(hidden(r)), product(teacher_hidden(r)));
  const std::int64_t gradients =
      saturating_product(product(hidden(r)), (g.grad_x ? 1 : 0) + (g.grad_w ? 1 : 0));

  CostEstimate c;
  c.flops = saturating_sum(both, gradients);
  c.executed_flops = saturating_sum(gradients, saturating_product(both, formed));
  // The student's exponential at T = 1 and at T, the teacher's; once for sums, once for gradients,
  // and for jsd two more and a logarithm in between. A tanh for each logit with a cap.
  const bool jsd = effective_divergence(r.options) == Divergence::jsd;
  const std::int64_t passes =
      (r.loss.wants_values() ? 1 : 0) + (has_gradients(r.loss.pass) ? 1 : 0);
  const std::int64_t look = jsd && !r.inputs.divergence_statistics ? 2 : 0;
  const std::int64_t caps = (r.options.loss.logit_soft_cap != 0.0f ? 1 : 0) +
                            (r.options.teacher_logit_soft_cap != 0.0f ? 1 : 0);
  c.transcendentals =
      saturating_product(logits, 3 * passes + (jsd ? 2 * passes : 0) + look + caps * formed);
  c.bytes_ideal = r.loss.ideal_bytes();
  // Each further look reads both layers again; dz is written once and read by each product.
  std::int64_t again = 0;
  for (const View* view : {&r.inputs.x, &r.inputs.w, &r.inputs.teacher_x, &r.inputs.teacher_w,
                           &r.inputs.teacher_logits}) {
    if (*view) again = saturating_sum(again, arguments::distinct_bytes(*view));
  }
  c.bytes_moved = saturating_sum(c.bytes_ideal,
                                 saturating_product(again, std::max<std::int64_t>(formed - 1, 0)));
  if (g.grad_x || g.grad_w) {
    c.bytes_moved = saturating_sum(c.bytes_moved,
                                   saturating_product(saturating_product(4, logits),
                                                      1 + (g.grad_x ? 1 : 0) + (g.grad_w ? 1 : 0)));
  }
  return c;
}

}  // namespace tessera::linear_distillation
