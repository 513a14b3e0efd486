// SPDX-License-Identifier: Apache-2.0
#include "host/operators/api.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/linear/request.hpp"
#include "host/linear_cross_entropy/request.hpp"

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

}  // namespace tessera::linear_cross_entropy

void tessera::loss::HostTraits<tessera::linear_cross_entropy::Operator>::check(
    const arguments::Checks& checks, const Request& request) {
  linear::check_dz_dtype(checks, request.execution.dz_dtype);
}
