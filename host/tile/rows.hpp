// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/layout.hpp"

namespace tessera::tile {

/// Elements between the first one and that of `index`.
inline std::int64_t offset_of(const Shape& index, const Shape& strides) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
  return offset;
}

/// Calls `body(index)` with the first element of every row (the last dimension is the row's).
template <class Body>
void for_each_row(const Shape& extents, Body body) {
  Shape index(extents.size(), 0);
  for (const auto extent : extents) {
    if (extent == 0) return;
  }
  for (;;) {
    body(index);
    std::size_t i = extents.size() < 2 ? 0 : extents.size() - 1;
    while (i > 0 && ++index[i - 1] == extents[i - 1]) index[--i] = 0;
    if (i == 0) return;
  }
}

}  // namespace tessera::tile
