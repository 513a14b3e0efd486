// SPDX-License-Identifier: Apache-2.0
#include "programs/operators.hpp"

#include <cctype>

namespace tessera::programs {

std::string block_sizes_text(const Description& op) {
  std::string text;
  for (const char* each : op.block_sizes) {
    if (!text.empty()) text += ',';
    text += static_cast<char>(std::toupper(each[0]));
  }
  return text;
}

std::optional<std::vector<NamedValue>> named_blocks(const Description& op,
                                                    const std::vector<std::int64_t>& values) {
  std::vector<const char*> names = op.block_sizes;
  if (values.size() == 3 && names.size() == 2) names.insert(names.begin() + 1, "h_block_size");
  if (values.size() != names.size()) return std::nullopt;
  std::vector<NamedValue> result;
  for (std::size_t i = 0; i < names.size(); ++i) result.push_back({names[i], values[i]});
  return result;
}

}  // namespace tessera::programs
