// SPDX-License-Identifier: Apache-2.0
#include "host/operators/options.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace tessera::operators {
namespace {

/// "mean, sum or none"
std::string list_of(std::span<const char* const> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + std::string(names[i]);
  }
  return text;
}

}  // namespace

void check_option(const arguments::Checks& checks, const char* name, const OptionValue& value,
                  const OptionRange& range, std::span<const char* const> choices) {
  const auto fail = [&](const std::string& what) {
    const auto text = std::visit([](auto number) { return fmt::format("{}", number); }, value);
    checks.fail(fmt::format("{} is {}; {}", name, text, what));
  };
  const double number = std::visit([](auto held) { return static_cast<double>(held); }, value);
  if (!choices.empty()) {
    if (!(number >= 0 && number < static_cast<double>(choices.size()))) {
      fail("give " + list_of(choices));
    }
    return;
  }
  // Written so that a NaN fails.
  const bool within =
      number >= range.least && (range.below_most ? number < range.most : number <= range.most);
  if (within && std::isfinite(number)) return;
  if (std::isfinite(range.least) && std::isfinite(range.most)) {
    fail(fmt::format("its range is {:g} to {}{:g}{}", range.least, range.below_most ? "below " : "",
                     range.most, range.hint));
  }
  if (!std::isfinite(number)) fail("give a finite number");
  if (number < range.least) fail(fmt::format("the least is {:g}{}", range.least, range.hint));
  fail(fmt::format("the most is {:g}{}", range.most, range.hint));
}

}  // namespace tessera::operators
