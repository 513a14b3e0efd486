// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "host/loss/request.hpp"

/// Results that the library owns.
namespace tessera::loss {

/// The extents of an argument that has this shape.
inline Dims extents_of(const SymbolicShape& shape, const LossRequest& request) {
  return shape.extents(request.leading, request.options.reduction != Reduction::none,
                       [&](char letter) { return letter == 'K' ? request.k : request.v_total; });
}

/// Describes the outputs that the call wants, without memory. Columns that an i32 cannot number
/// make argmax i64.
void describe_outputs(LossRequest& request);
/// The views without memory of forward_partial's rows; `own_words`: of each row's own.
void describe_partial(LossRequest& request, std::int64_t own_words);

}  // namespace tessera::loss
