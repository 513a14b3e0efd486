// SPDX-License-Identifier: Apache-2.0
#include "host/arguments/bytes.hpp"
#include "host/softmax_cross_entropy/request.hpp"

namespace tessera::softmax_cross_entropy {

CostEstimate cost(const Request& r) {
  using arguments::saturating_product;
  using arguments::saturating_sum;
  const std::int64_t logits = saturating_product(r.loss.b, r.loss.v);
  const bool both = r.loss.pass == Pass::value_and_grad;
  const std::int64_t cap = r.loss.options.logit_soft_cap != 0.0f ? 1 : 0;

  CostEstimate c;
  // Forward: scale, subtract the maximum, add. A gradient: scale, subtract lse, two products by
  // factors of the row and the scale. A compare and the exp itself do not count.
  const std::int64_t per_logit =
      (r.loss.wants_values() ? 3 : 0) + (has_gradients(r.loss.pass) ? 5 : 0);
  c.flops = c.executed_flops = saturating_product(logits, per_logit);
  // value_and_grad forms each logit twice: for lse, and for the gradient once lse is known.
  c.transcendentals = saturating_product(logits, (both ? 2 : 1) * (1 + cap));
  if (r.loss.wants_values()) c.transcendentals = saturating_sum(c.transcendentals, r.loss.b);

  c.bytes_ideal = r.loss.ideal_bytes();
  c.bytes_moved = both ? saturating_sum(c.bytes_ideal, arguments::distinct_bytes(r.inputs.logits))
                       : c.bytes_ideal;
  return c;
}

}  // namespace tessera::softmax_cross_entropy
