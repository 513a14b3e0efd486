// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace tessera::oracle {

/// Throws std::invalid_argument naming the member whose size does not fit the extents.
inline void require_size(std::size_t actual, std::int64_t expected, const char* name) {
  if (actual != static_cast<std::size_t>(expected)) {
    throw std::invalid_argument(std::string("oracle: ") + name + " has " + std::to_string(actual) +
                                " elements, expected " + std::to_string(expected));
  }
}

inline void require_optional(std::size_t actual, std::int64_t expected, const char* name) {
  if (actual != 0) require_size(actual, expected, name);
}

}  // namespace tessera::oracle
