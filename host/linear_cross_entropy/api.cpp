// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/linear_cross_entropy/request.hpp"
#include "host/loss/operator.hpp"
#include "host/loss/partial.hpp"

namespace tessera::linear_cross_entropy {

#include "host/loss/api.inc"

std::pair<BlockSizes, BlockSource> infer_block_sizes(Context& context,
                                                     const std::string& implementation, Pass pass,
                                                     std::int64_t b, std::int64_t h, std::int64_t v,
                                                     DType x_type, DType w_type) {
  const auto shape = [](DType type, const Dims& extents) {
    return View::host(nullptr, type, extents);
  };
  Inputs inputs{
      .x = shape(x_type, {b, h}), .labels = shape(DType::i32, {b}), .w = shape(w_type, {h, v})};
  if (pass == Pass::backward) inputs.statistics = shape(DType::f32, {b, 2});
  return infer_block_sizes(context, implementation, pass, inputs);
}

namespace {

class Behind final : public loss::LossOperator {
 public:
  Behind()
      : LossOperator(operators::description_of<Operator>(),
                     operators::make_table([](auto) { return opencl_implementations(); },
                                           eigen_implementation(), tile_implementation(),
                                           reference_implementation())) {}

 private:
  void check_own(const arguments::Checks& checks, const loss::LossRequest& request) const override {
    linear::check_dz_dtype<Operator>(checks, request.call);
  }
};

}  // namespace
}  // namespace tessera::linear_cross_entropy

const tessera::operators::AnyOperator&
tessera::OperatorTraits<tessera::linear_cross_entropy::Operator>::behind() {
  // Never destroyed: destructors of static objects may call.
  static const auto& behind = *new linear_cross_entropy::Behind();
  return behind;
}
