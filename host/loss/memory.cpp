// SPDX-License-Identifier: Apache-2.0
#include "host/loss/memory.hpp"

#include <algorithm>
#include <limits>

namespace tessera::loss {

namespace {
constexpr auto largest = std::numeric_limits<std::int64_t>::max();
}

std::int64_t workspace_budget(const ContextState& state, bool on_device, std::int64_t v,
                              const std::optional<std::size_t>& requested) {
  if (requested) {
    return static_cast<std::int64_t>(
        std::min<std::uint64_t>(*requested, static_cast<std::uint64_t>(largest)));
  }
  if (on_device && state.device && state.device->info().type == "gpu") {
    return state.device->info().global_memory_bytes / 16;
  }
  // 64 MiB is beyond the caches of today's CPUs; 256 rows keep a matrix product efficient.
  constexpr std::int64_t floor_bytes = std::int64_t{64} << 20;
  constexpr std::int64_t rows = 256;
  return std::max(floor_bytes, saturating_product(rows * 4, v));
}

std::int64_t saturating_product(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? largest : result;
}

std::int64_t saturating_sum(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? largest : result;
}

std::int64_t distinct_bytes(const View& view) noexcept {
  if (!view) return 0;
  auto bytes = static_cast<std::int64_t>(size_of(view.dtype()));
  for (int axis = 0; axis < view.rank(); ++axis) {
    const std::int64_t extent = view.extents()[axis];
    bytes = saturating_product(bytes, view.strides()[axis] == 0 && extent > 0 ? 1 : extent);
  }
  return bytes;
}

std::int64_t ideal_bytes(const std::vector<dispatch::NamedView>& inputs,
                         const std::vector<dispatch::NamedView>& outputs) noexcept {
  std::int64_t sum = 0;
  for (const auto& named : inputs) sum = saturating_sum(sum, distinct_bytes(named.view));
  for (const auto& named : outputs) sum = saturating_sum(sum, distinct_bytes(named.view));
  return sum;
}

}  // namespace tessera::loss
