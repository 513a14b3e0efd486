// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/loss/operator.hpp"
#include "host/loss/partial.hpp"
#include "host/softmax_cross_entropy/request.hpp"

namespace tessera::softmax_cross_entropy {

#include "host/loss/api.inc"

std::pair<BlockSizes, BlockSource> infer_block_sizes(Context& context,
                                                     const std::string& implementation, Pass pass,
                                                     std::int64_t b, std::int64_t v,
                                                     DType logits_type) {
  Inputs inputs{.logits = View::host(nullptr, logits_type, {b, v}),
                .labels = View::host(nullptr, DType::i32, {b})};
  if (pass == Pass::backward) inputs.statistics = View::host(nullptr, DType::f32, {b, 2});
  return infer_block_sizes(context, implementation, pass, inputs);
}

}  // namespace tessera::softmax_cross_entropy

const tessera::operators::AnyOperator&
tessera::OperatorTraits<tessera::softmax_cross_entropy::Operator>::behind() {
  using namespace softmax_cross_entropy;
  // Never destroyed: destructors of static objects may call.
  static const auto& behind = *new loss::LossOperator(
      operators::description_of<Operator>(),
      operators::make_table([](auto) { return opencl_implementations(); }, eigen_implementation(),
                            reference_implementation()));
  return behind;
}
