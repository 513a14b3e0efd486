// SPDX-License-Identifier: Apache-2.0
#include "programs/operators.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

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
  constexpr std::string_view of_layers = "bhv";
  auto blocks = op.block_sizes;
  const auto place_of = [&](const NamedValue& block) { return of_layers.find(block.name[0]); };
  const bool by_letter = values.size() == of_layers.size() &&
                         std::all_of(blocks.begin(), blocks.end(), [&](const auto& block) {
                           return place_of(block) != of_layers.npos;
                         });
  if (!by_letter && values.size() != blocks.size()) return std::nullopt;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].value = values[by_letter ? place_of(blocks[i]) : i];
  }
  return blocks;
}

}  // namespace tessera::programs
