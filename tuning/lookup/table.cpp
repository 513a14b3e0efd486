// SPDX-License-Identifier: Apache-2.0
#include "tuning/lookup/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tuning/lookup/lines.hpp"

namespace tessera::tuning {
namespace {

/// The cell, which has to be one of `allowed`.
std::string one_of(std::string_view column, const std::string& cell,
                   std::initializer_list<std::string_view> allowed) {
  if (std::find(allowed.begin(), allowed.end(), cell) != allowed.end()) return cell;
  throw BadLine{fmt::format(
      "{} is \"{}\"; it is one of {}{}", column, cell,
      allowed.begin()->empty() ? "nothing (any), " : "",
      fmt::join(allowed.begin() + (allowed.begin()->empty() ? 1 : 0), allowed.end(), ", "))};
}

std::size_t bucket_of(const std::string& name) {
  const auto& all = buckets();
  if (name.empty()) return all.size();
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return i;
    names.push_back(all[i].name);
  }
  throw BadLine{fmt::format("bucket is \"{}\"; it is nothing (any shape) or one of {}", name,
                            fmt::join(names, ", "))};
}

Row row_of(std::string_view line) {
  const auto cells = cells_of(line);
  if (cells.size() != columns.size()) {
    throw BadLine{fmt::format("it has {} cells; a row has {}", cells.size(), columns.size())};
  }
  const auto cell = [&](std::string_view name) -> const std::string& {
    return cells[static_cast<std::size_t>(std::find(columns.begin(), columns.end(), name) -
                                          columns.begin())];
  };
  for (const auto name : {"operator", "implementation"}) {
    // Blocks mean something else on each.
    if (cell(name).empty()) throw BadLine{fmt::format("{} is empty; name one", name)};
  }
  for (const auto name : {"median_seconds", "spread", "heuristic_seconds"}) {
    if (cell(name).empty()) continue;
    const auto value = number_of<double>(cell(name));
    if (value && std::isfinite(*value) && *value >= 0.0) continue;
    throw BadLine{
        fmt::format("{} is \"{}\"; give a number from 0 on, or nothing", name, cell(name))};
  }
  Row row;
  row.operation = cell("operator");
  row.pass = one_of("pass", cell("pass"),
                    {"", to_string(Pass::forward), to_string(Pass::backward),
                     to_string(Pass::value_and_grad), to_string(Pass::forward_partial)});
  row.implementation = cell("implementation");
  row.device = cell("device");
  row.device_class = cell("device_class");
  row.dtype = cell("dtype");
  row.layout = one_of("layout", cell("layout"), {"", "hv", "vh"});
  row.workspace = one_of("workspace", cell("workspace"), {"", "default", "below"});
  row.gradients = cell("gradients");
  row.bucket = bucket_of(cell("bucket"));
  row.block_sizes = values_of("block_sizes", cell("block_sizes"), 1);
  row.knobs = values_of("knobs", cell("knobs"), 0);
  row.provenance = one_of("provenance", cell("provenance"), {"measured", "published", "modelled"});
  return row;
}

/// "few-tokens,HV,B1..16 H2048..".
Bucket bucket_of_line(std::string_view line) {
  const auto cells = cells_of(line);
  Bucket bucket{.name = cells.at(0), .of = cells.at(1)};
  for (std::string_view rest = cells.at(2); !rest.empty();) {
    const auto range = rest.substr(0, rest.find(' '));
    const auto dots = range.find("..");
    bucket.ranges.push_back({range.front(),
                             number_of<std::int64_t>(range.substr(1, dots - 1)).value_or(0),
                             number_of<std::int64_t>(range.substr(dots + 2))
                                 .value_or(std::numeric_limits<std::int64_t>::max())});
    rest.remove_prefix(std::min(range.size() + 1, rest.size()));
  }
  return bucket;
}

}  // namespace

bool Bucket::holds(const ProblemExtents& extents) const noexcept {
  const auto holds_extent = [&](const Range& range) {
    const std::int64_t extent = extents[range.letter];
    return extent == ProblemExtents::absent || (range.least <= extent && extent <= range.most);
  };
  return std::any_of(of.begin(), of.end(), [&](char letter) { return extents.has(letter); }) &&
         std::all_of(ranges.begin(), ranges.end(), holds_extent);
}

const std::vector<Bucket>& buckets() {
  static const auto& all = *[] {  // never destroyed, like all that calls may look at
    auto* list = new std::vector<Bucket>;
    for (const auto& file : embedded_tables()) {
      if (file.path != "buckets.csv") continue;
      for_lines(file.text, [&](std::string_view line, int) {
        if (line.empty() || line.front() == '#' || line.starts_with("name,")) return;
        list->push_back(bucket_of_line(line));
      });
    }
    return list;
  }();
  return all;
}

Table parse_table(const std::string& text, const std::string& name) {
  // Enough to see what is wrong.
  constexpr std::size_t most_problems = 20;
  Table table;
  bool readable = false, has_header = false;
  std::size_t skipped = 0;
  const auto skip = [&](int number, const std::string& what) {
    if (++skipped > most_problems) return;
    table.problems.push_back(fmt::format("{}:{}: {}", name, number, what));
  };
  for_lines(text, [&](std::string_view line, int number) {
    if (number == 1) {
      readable = line == format_line;
      if (!readable) {
        skip(1, fmt::format("the first line is \"{}\"; this library reads tables that begin with "
                            "\"{}\", and nothing of this one",
                            line.substr(0, 60), format_line));
      }
      return;
    }
    if (!readable || line.empty() || line.front() == '#') return;
    if (!has_header) {
      has_header = true;
      if (line == fmt::format("{}", fmt::join(columns, ","))) return;
      return skip(number, fmt::format("the header is not \"{}\"; rows are read as if it were",
                                      fmt::join(columns, ",")));
    }
    try {
      Row row = row_of(line);
      row.where = fmt::format("{}:{}", name, number);
      table.rows.push_back(std::move(row));
    } catch (const BadLine& bad) {
      skip(number, bad.what + "; the line is skipped");
    }
  });
  if (skipped > most_problems) {
    table.problems.push_back(
        fmt::format("{}: {} lines more are skipped", name, skipped - most_problems));
  }
  return table;
}

}  // namespace tessera::tuning
