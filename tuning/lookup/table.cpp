// SPDX-License-Identifier: Apache-2.0
#include "tuning/lookup/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace tessera::tuning {
namespace {

/// What is wrong with a line.
struct BadLine {
  std::string what;
};

/// Blocks beyond this are larger than any extent, and sums of them must not overflow.
constexpr std::int64_t most_value = std::numeric_limits<std::int32_t>::max();

/// Calls `use(line, number)` for each line, without its end; numbers begin at 1.
template <class Use>
void for_lines(std::string_view text, const Use& use) {
  for (int number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    use(line, number);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

/// The cells of a line. One in quotes may hold commas, and two quotes for one.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char letter = line[at];
    if (letter == '"') {
      if (quoted && line.substr(at + 1, 1) == "\"") {
        cells.back() += line[at++];
      } else {
        quoted = !quoted;
      }
    } else if (letter == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += letter;
    }
  }
  if (quoted) throw BadLine{"a quote is not closed"};
  return cells;
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "b_block_size=8 v_block_size=64"
std::vector<NamedValue> values_of(std::string_view column, std::string_view cell,
                                  std::int64_t least) {
  std::vector<NamedValue> values;
  while (!cell.empty()) {
    const auto end = cell.find(' ');
    const auto one = cell.substr(0, end);
    const auto equals = one.find('=');
    const auto value = equals == std::string_view::npos
                           ? std::nullopt
                           : number_of<std::int64_t>(one.substr(equals + 1));
    if (!value || equals == 0 || *value < least || *value > most_value) {
      throw BadLine{fmt::format(
          "{} has \"{}\"; give NAME=VALUE, with a space between two, and a value from {} to {}",
          column, one, least, most_value)};
    }
    values.push_back({std::string(one.substr(0, equals)), *value});
    const auto same = [&](const NamedValue& other) { return other.name == values.back().name; };
    if (std::any_of(values.begin(), values.end() - 1, same)) {
      throw BadLine{fmt::format("{} has {} twice", column, values.back().name)};
    }
    cell.remove_prefix(end == std::string_view::npos ? cell.size() : end + 1);
  }
  return values;
}

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

Bucket bucket_of_line(std::string_view line) {
  const auto cells = cells_of(line);
  Bucket bucket{.name = cells.at(0)};
  for (std::size_t axis = 0; axis < bucket.least.size(); ++axis) {
    bucket.least[axis] = number_of<std::int64_t>(cells.at(2 * axis + 1)).value_or(0);
    bucket.most[axis] = number_of<std::int64_t>(cells.at(2 * axis + 2))
                            .value_or(std::numeric_limits<std::int64_t>::max());
  }
  return bucket;
}

}  // namespace

bool Bucket::holds(const Extents& extents) const noexcept {
  for (std::size_t axis = 0; axis < extents.size(); ++axis) {
    if (extents[axis] == absent) continue;
    if (extents[axis] < least[axis] || extents[axis] > most[axis]) return false;
  }
  return true;
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
