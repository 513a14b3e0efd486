// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/execution.hpp"

namespace tessera::dispatch {

/// One of the ways in which an implementation can cut a call, for who looks for the fastest.
struct Choice {
  std::vector<NamedValue> knobs{};
  /// What a legal block of each axis is a multiple of then, in the order of the description; empty:
  /// any number is legal.
  std::vector<std::int64_t> multiples{};
};

/// The value that a list gives a name; nothing: it does not have it.
std::optional<std::int64_t> value_of(std::span<const NamedValue> list, std::string_view name);

/// Throws Error invalid_argument where a knob that the caller gave (`given`) is none of those that
/// `implementation` runs with (`reported`), or has another value there.
void check_knobs(const std::vector<NamedValue>& given, const std::vector<NamedValue>& reported,
                 const std::string& implementation);

/// The error for a knob whose value is none of the legal ones.
[[noreturn]] void throw_illegal_knob(const NamedValue& knob, std::vector<std::int64_t> legal,
                                     const std::string& implementation);

}  // namespace tessera::dispatch
