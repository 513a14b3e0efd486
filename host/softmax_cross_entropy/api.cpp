// SPDX-License-Identifier: Apache-2.0
#include "host/operators/api.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

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
