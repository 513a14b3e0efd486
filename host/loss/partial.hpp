// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <vector>

#include "host/operators/call.hpp"
#include "tessera/loss.hpp"

namespace tessera::loss {

/// What forward_partial returns for any operator.
struct CallPartial {
  PartialResult result{};
  /// What the operator has of a row besides, row after row, in words of 4 bytes.
  std::vector<float> own{};
};

/// The same words as structs.
template <class Row>
std::vector<Row> rows_of(const std::vector<float>& words) {
  static_assert(sizeof(Row) % sizeof(float) == 0 && alignof(Row) == alignof(float),
                "words without gaps");
  std::vector<Row> rows(words.size() * sizeof(float) / sizeof(Row));
  if (!rows.empty())
    std::memcpy(static_cast<void*>(rows.data()), words.data(), words.size() * sizeof(float));
  return rows;
}

}  // namespace tessera::loss

namespace tessera::operators {

/// The call, whose pass is forward_partial. Throws Error as the operator's function does.
TESSERA_API loss::CallPartial forward_partial(Context& context, Call call);

}  // namespace tessera::operators
