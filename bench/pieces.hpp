// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace tessera::bench {

/// Cuts [0, n) into one piece per thread and calls body(first, count) for each at the same time.
inline void in_pieces(std::int64_t n, std::int64_t threads,
                      const std::function<void(std::int64_t, std::int64_t)>& body) {
  const auto piece = [&](std::int64_t i) {
    const std::int64_t first = n * i / threads;
    body(first, n * (i + 1) / threads - first);
  };
  std::vector<std::jthread> others;
  for (std::int64_t i = 1; i < threads; ++i) others.emplace_back(piece, i);
  piece(0);
}

}  // namespace tessera::bench
