// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "host/arguments/checks.hpp"
#include "tessera/operator.hpp"

namespace tessera::operators {

/// Error that names option, value and limit unless the value is in its range.
void check_option(const arguments::Checks& checks, const char* name, const OptionValue& value,
                  const OptionRange& range, std::span<const char* const> choices);

/// The same of every option of `all`.
template <class Options, std::size_t count>
void check_options(const arguments::Checks& checks,
                   const std::array<OptionArgument<Options>, count>& all, const Options& options) {
  for (const auto& each : all) {
    check_option(checks, each.name, each.value(options), each.range, each.choices);
  }
}

}  // namespace tessera::operators
