// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/specialise.hpp"

#include <algorithm>

namespace tessera::opencl {

namespace {

std::int64_t at_least_one(std::int64_t count, std::int64_t multiple) {
  return (std::max<std::int64_t>(count, 1) + multiple - 1) / multiple * multiple;
}

}  // namespace

std::int64_t region_words(std::int64_t words) { return at_least_one(words, 16); }

std::string type_option(const char* name, DType type) {
  return std::string("-D") + name + '=' + static_cast<char>('0' + static_cast<int>(type));
}

Range per_element(std::int64_t count, std::int64_t second) {
  constexpr std::int64_t group = 64;
  const auto first = static_cast<std::size_t>(at_least_one(count, group));
  return with_second({{first, 1, 1}, {static_cast<std::size_t>(group), 1, 1}}, second);
}

Range with_second(Range range, std::int64_t second) {
  second = std::max<std::int64_t>(second, 1);
  const std::int64_t third = (second + max_second_groups - 1) / max_second_groups;
  range.global[1] = static_cast<std::size_t>((second + third - 1) / third);
  range.global[2] = static_cast<std::size_t>(third);
  return range;
}

}  // namespace tessera::opencl
