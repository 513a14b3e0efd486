// SPDX-License-Identifier: Apache-2.0
#include "programs/operators.hpp"

#include <cctype>

namespace tessera::programs {

const std::vector<Description>& losses() {
  static const auto all = [] {
    auto some = descriptions();
    std::erase_if(some, [](const Description& op) { return op.input("labels") == nullptr; });
    return some;
  }();
  return all;
}

std::string block_sizes_text(const Description& op) {
  std::string text;
  for (const auto& each : op.block_sizes) {
    if (!text.empty()) text += ',';
    text += static_cast<char>(std::toupper(each.name[0]));
  }
  return text;
}

std::optional<std::vector<NamedValue>> named_blocks(const Description& op,
                                                    const std::vector<std::int64_t>& values) {
  auto blocks = op.block_sizes;
  if (values.size() == 3 && blocks.size() == 2) blocks.insert(blocks.begin() + 1, {"h_block_size"});
  if (values.size() != blocks.size()) return std::nullopt;
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].value = values[i];
  return blocks;
}

}  // namespace tessera::programs
