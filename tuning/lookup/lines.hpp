// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/execution.hpp"

/// Lines of comma-separated values, of tables and of a tuner's raw results.
namespace tessera::tuning {

/// What is wrong with a line.
struct BadLine {
  std::string what;
};

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

/// The cells of a line. One in quotes may hold commas, and two quotes for one. Throws BadLine.
std::vector<std::string> cells_of(std::string_view line);

/// A cell that holds the text on one line, in quotes where it needs them.
std::string cell_of(std::string_view text);

/// "b_block_size=8 v_block_size=64", values from `least` on. Throws BadLine, which names the
/// column.
std::vector<NamedValue> values_of(std::string_view column, std::string_view cell,
                                  std::int64_t least);
/// The cell of these values.
std::string text_of(const std::vector<NamedValue>& values);

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace tessera::tuning
