// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/knobs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/error.hpp"

namespace tessera::dispatch {

std::optional<std::int64_t> value_of(std::span<const NamedValue> list, std::string_view name) {
  for (const auto& each : list) {
    if (each.name == name) return each.value;
  }
  return std::nullopt;
}

void check_knobs(const std::vector<NamedValue>& given, const std::vector<NamedValue>& reported,
                 const std::string& implementation) {
  for (const auto& knob : given) {
    const auto value = value_of(reported, knob.name);
    if (!value) {
      std::vector<std::string> names;
      for (const auto& each : reported) names.push_back(each.name);
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("knobs: {} has no \"{}\", but {}; leave it out, or name the "
                              "implementation that has it",
                              implementation, knob.name,
                              names.empty() ? "no knob at all"
                                            : fmt::format("{}", fmt::join(names, ", "))));
    }
    if (*value != knob.value) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("knobs: {} = {} is given, but this call on {} has {}, which follows "
                              "from its shapes, block sizes and workspace; leave the knob out, or "
                              "change those",
                              knob.name, knob.value, implementation, *value));
    }
  }
}

void throw_illegal_knob(const NamedValue& knob, std::vector<std::int64_t> legal,
                        const std::string& implementation) {
  std::sort(legal.begin(), legal.end());
  legal.erase(std::unique(legal.begin(), legal.end()), legal.end());
  throw Error(ErrorCode::invalid_argument,
              fmt::format("knobs: {} = {} is illegal for {}: with the other knobs given it must be "
                          "one of {}",
                          knob.name, knob.value, implementation, fmt::join(legal, ", ")));
}

}  // namespace tessera::dispatch
