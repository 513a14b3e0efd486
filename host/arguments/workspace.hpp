// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tessera/view.hpp"

namespace tessera::arguments {

/// The bound on a call's scratch memory where the caller gives none, in bytes: the larger of 64
/// MiB, and 1 MiB more for each of `cores` beyond 32, whose packed operands it has to hold, and 256
/// rows of `columns` f32 values.
constexpr std::int64_t default_workspace_bytes(std::int64_t columns, std::int64_t cores = 1) {
  const std::int64_t mib = 64 + std::max<std::int64_t>(cores - 32, 0);
  return std::max<std::int64_t>(mib << 20, 256 * 4 * columns);
}

/// Throws Error workspace_too_small when the caller's bound, `workspace_bytes` or the size of the
/// lent `workspace`, is below `needed` bytes. For implementations that allocate for themselves: a
/// lent block is checked, not used. `who`: "reference, which materialises everything in double,".
void check_fixed_workspace(const char* who, std::optional<std::size_t> workspace_bytes,
                           const MutableView& workspace, std::int64_t needed);

}  // namespace tessera::arguments
