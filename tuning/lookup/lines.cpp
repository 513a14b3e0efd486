// SPDX-License-Identifier: Apache-2.0
#include "tuning/lookup/lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace tessera::tuning {
namespace {

/// Blocks beyond this are larger than any extent, and sums of them must not overflow.
constexpr std::int64_t most_value = std::numeric_limits<std::int32_t>::max();

}  // namespace

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

std::string cell_of(std::string_view text) {
  std::string cell;
  for (const char letter : text) {
    cell += letter == '\n' || letter == '\r' ? ' ' : letter;
    if (letter == '"') cell += letter;
  }
  return cell.find_first_of(",\"") == std::string::npos ? cell : '"' + cell + '"';
}

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

std::string text_of(const std::vector<NamedValue>& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  }
  return text;
}

}  // namespace tessera::tuning
