// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tessera/tile/layout.hpp"

namespace tessera::tile {

/// "[601, 600]"
inline std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

/// Rounds up to a multiple of `unit` > 0.
constexpr std::int64_t align_to(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace tessera::tile
