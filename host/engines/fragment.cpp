// SPDX-License-Identifier: Apache-2.0
#include "host/engines/fragment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tessera::engines {
namespace {

struct Matrix {
  char name;
  int rows, columns;
  Places places;
};

std::string why_not_once(const Matrix& matrix, int lanes) {
  const auto& [name, rows, columns, places] = matrix;
  if (rows < 1 || columns < 1 || lanes < 1 || rows * columns % lanes != 0) {
    return fmt::format("its {} of {} x {} has no whole share for each of {} lanes", name, rows,
                       columns, lanes);
  }
  std::vector<bool> taken(static_cast<std::size_t>(rows * columns));
  for (int lane = 0; lane < lanes; ++lane) {
    for (int i = 0; i < rows * columns / lanes; ++i) {
      const int row = places.row(i, lane), column = places.column(i, lane);
      const bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
      const auto place = static_cast<std::size_t>(inside ? row * columns + column : 0);
      if (!inside || taken[place]) {
        return fmt::format("element {} of lane {} of its {}, of {} x {}, is at ({}, {}), {}", i,
                           lane, name, rows, columns, row, column,
                           inside ? "where another is" : "beyond it");
      }
      taken[place] = true;
    }
  }
  return {};
}

}  // namespace

std::optional<std::string> why_unusable(const Fragment& unit,
                                        const std::vector<std::int64_t>& sub_group_sizes) {
  for (const Matrix& matrix :
       {Matrix{'A', unit.m, unit.k, unit.a}, Matrix{'B', unit.k, unit.n, unit.b},
        Matrix{'C', unit.m, unit.n, unit.c}}) {
    const std::string reason = why_not_once(matrix, unit.lanes);
    if (!reason.empty()) return fmt::format("{}: {}", unit.name, reason);
  }
  // A driver takes the one that it likes of several sizes.
  const bool fits = std::all_of(sub_group_sizes.begin(), sub_group_sizes.end(),
                                [&](std::int64_t size) { return size == unit.lanes; });
  if (!fits) {
    return fmt::format("{} has {} lanes, the device's sub-groups have {}", unit.name, unit.lanes,
                       fmt::join(sub_group_sizes, ", "));
  }
  return std::nullopt;
}

}  // namespace tessera::engines
