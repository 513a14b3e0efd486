// SPDX-License-Identifier: Apache-2.0
#include "host/arguments/bytes.hpp"

#include <algorithm>
#include <limits>

namespace tessera::arguments {

namespace {
constexpr auto largest = std::numeric_limits<std::int64_t>::max();
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

std::int64_t ideal_bytes(const std::vector<NamedView>& inputs,
                         const std::vector<NamedView>& outputs) noexcept {
  std::int64_t sum = 0;
  for (const auto& named : inputs) sum = saturating_sum(sum, distinct_bytes(named.view));
  for (const auto& named : outputs) sum = saturating_sum(sum, distinct_bytes(named.view));
  return sum;
}

std::string names(const std::vector<NamedView>& views) {
  std::string text;
  for (const auto& named : views) text += (text.empty() ? "" : ", ") + std::string(named.name);
  return text;
}

}  // namespace tessera::arguments
