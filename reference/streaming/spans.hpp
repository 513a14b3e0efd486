// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "reference/streaming/kernels.hpp"

/// Small arithmetic on offsets and blocks.
namespace tessera::streaming {

inline std::int64_t bytes_of(Type type) { return type == Type::f32 ? 4 : 2; }

inline void* at(void* data, Type type, std::int64_t offset) {
  return static_cast<char*>(data) + offset * bytes_of(type);
}
inline const void* at(const void* data, Type type, std::int64_t offset) {
  return static_cast<const char*>(data) + offset * bytes_of(type);
}

/// Rows lie a fixed distance apart (and may be handed to a product as they are).
inline bool evenly_spaced(const std::int64_t* offsets, std::int64_t rows) {
  for (std::int64_t r = 2; r < rows; ++r) {
    if (offsets[r] - offsets[r - 1] != offsets[1] - offsets[0]) return false;
  }
  return rows < 2 || offsets[1] >= offsets[0];
}

/// Consecutive columns or depths [first, first + count).
struct Span {
  std::int64_t first, count;
};

inline Span block_span(std::int64_t index, std::int64_t block, std::int64_t extent) {
  const std::int64_t first = index * block;
  return {first, std::min(block, extent - first)};
}

/// A matrix of f32 with rows `ld` floats apart, as a product reads it.
struct Operand {
  const float* data;
  std::int64_t ld;
};

}  // namespace tessera::streaming
