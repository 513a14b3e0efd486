// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/arguments/bytes.hpp"
#include "host/rms_norm/request.hpp"

namespace tessera::rms_norm {

#include "host/operators/api.inc"
#include "host/operators/api_backward.inc"

CostEstimate cost(const Request& r) {
  using arguments::saturating_product;
  const std::int64_t elements = saturating_product(r.b, r.h);
  CostEstimate c;
  // Forward: x^2 and its sum, products by 1 / root and by scale. Backward: x^2 and its sum (2), dy
  // scale x and its sum (3), grad_x = (dy scale - x projection) / root (4), and dy x / root and its
  // sum for grad_scale (3).
  c.flops = c.executed_flops = saturating_product(elements, r.is_backward() ? 12 : 4);
  c.transcendentals = r.b;
  c.bytes_ideal = c.bytes_moved = r.base.ideal_bytes();
  return c;
}

namespace {

class Behind final : public operators::PlainOperator {
 public:
  Behind()
      : PlainOperator(operators::make_table([](auto) { return opencl_implementations(); },
                                            eigen_implementation(), tile_implementation(),
                                            reference_implementation())) {}

 private:
  void check_own(const arguments::Checks& checks, const operators::Call& call) const override {
    const float offset = operators::options_of<Operator>(call).offset;
    if (offset != 0.0f && !operators::input<Operator, &Inputs::scale>(call)) {
      checks.fail(
          fmt::format("offset is {}, but no scale is given that it could be added to; give "
                      "scale, or an offset of 0",
                      offset));
    }
    if (call.inputs[0].extents().back() > 0) return;
    checks.fail("x has shape " + arguments::to_string(call.inputs[0].extents()) +
                "; the mean over its last axis, H, takes at least one element");
  }
};

}  // namespace
}  // namespace tessera::rms_norm

const tessera::operators::AnyOperator&
tessera::OperatorTraits<tessera::rms_norm::Operator>::behind() {
  // Never destroyed: destructors of static objects may call.
  static const auto& behind = *new rms_norm::Behind();
  return behind;
}
