// SPDX-License-Identifier: Apache-2.0
#include "tuning/lookup/lookup.hpp"

#include <cmath>
#include <limits>

namespace tessera::tuning {

namespace {

bool same_kind(const Key& row, const Key& key, bool by_class) {
  const bool device = by_class ? row.device.empty() && row.device_class == key.device_class
                               : row.device == key.device;
  return device && row.operation == key.operation && row.pass == key.pass &&
         row.implementation == key.implementation && row.dtype == key.dtype &&
         row.extents.size() == key.extents.size();
}

/// Shapes are bucketed by distance on a logarithmic scale: the best blocks follow ratios.
double distance(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::abs(std::log2(static_cast<double>(a[i]) + 1.0) -
                    std::log2(static_cast<double>(b[i]) + 1.0));
  }
  return sum;
}

}  // namespace

std::span<const TableRow> builtin_table() { return {}; }

std::span<const TableRow> user_table() { return {}; }

const Entry* find(std::span<const TableRow> table, const Key& key, bool by_class) {
  const Entry* best = nullptr;
  double nearest = std::numeric_limits<double>::infinity();
  for (const auto& row : table) {
    if (!same_kind(row.key, key, by_class)) continue;
    const double d = distance(row.key.extents, key.extents);
    if (d < nearest) {
      nearest = d;
      best = &row.entry;
    }
  }
  return best;
}

}  // namespace tessera::tuning
