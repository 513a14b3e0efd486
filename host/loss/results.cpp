// SPDX-License-Identifier: Apache-2.0
#include "host/loss/results.hpp"

#include <exception>

#include "host/arguments/owned.hpp"
#include "tessera/operator.hpp"

namespace tessera::loss {

void describe_outputs(LossRequest& request) {
  const auto& options = request.options;
  for (const auto& output : loss_outputs) {
    if (output.wanted != nullptr && !(options.wants.*output.wanted)) continue;
    const DType type = output.types == ElementTypes::i32 ? DType::i32 : DType::f32;
    request.outputs.*output.view = MutableView::host(
        nullptr, type,
        output.shape.extents(request.leading, options.reduction, [&](char) { return request.v; }));
  }
}

void describe_partial(LossRequest& request) {
  static_assert(sizeof(Partial) == 32, "a Partial is eight words, as LossRequest::partial says");
  request.partial = MutableView::host(nullptr, DType::f32, {request.b, 8});
}

void allocate_outputs(LossRequest& request, LossResult& result) {
  for (const auto& output : loss_outputs) {
    arguments::allocate(request.outputs.*output.view, result.*output.owned, output.name);
  }
}

void allocate_partial(LossRequest& request, PartialResult& result) {
  try {
    result.rows.resize(static_cast<std::size_t>(request.b));
  } catch (const std::exception&) {
    throw Error(ErrorCode::out_of_memory, "partial: the host has no memory for " +
                                              std::to_string(request.b) + " rows; split them");
  }
  result.extents = request.leading;
  result.vocab_size_total = request.v_total;
  result.columns = request.v;
  request.partial = MutableView::host(result.rows.data(), DType::f32, request.partial.extents());
}

}  // namespace tessera::loss
