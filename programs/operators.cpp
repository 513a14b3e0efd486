// SPDX-License-Identifier: Apache-2.0
#include "programs/operators.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "programs/cli.hpp"

namespace tessera::programs {

const OperatorInput* OperatorInfo::input(const std::string& wanted) const {
  const auto found = std::find_if(inputs.begin(), inputs.end(),
                                  [&](const auto& each) { return each.name == wanted; });
  return found == inputs.end() ? nullptr : &*found;
}

bool OperatorInfo::has_weights() const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const auto& each) { return each.is_weight(); });
}

bool OperatorInfo::has_hidden() const {
  return std::any_of(inputs.begin(), inputs.end(), [](const auto& each) {
    return std::string_view(each.shape.text()).find('H') != std::string_view::npos;
  });
}

std::string OperatorInfo::block_sizes_text() const {
  std::string text;
  for (const char* each : block_sizes) {
    if (!text.empty()) text += ',';
    text += static_cast<char>(std::toupper(each[0]));
  }
  return text;
}

std::optional<std::vector<NamedValue>> OperatorInfo::named(
    const std::vector<std::int64_t>& values) const {
  std::vector<const char*> names = block_sizes;
  if (values.size() == 3 && names.size() == 2) names.insert(names.begin() + 1, "h_block_size");
  if (values.size() != names.size()) return std::nullopt;
  std::vector<NamedValue> result;
  for (std::size_t i = 0; i < names.size(); ++i) result.push_back({names[i], values[i]});
  return result;
}

const std::vector<OperatorInfo>& operator_infos() {
  static const std::vector<OperatorInfo> all = [] {
    std::vector<OperatorInfo> infos;
    for_each_operator([&]<class Operator>(std::type_identity<Operator>) {
      using Traits = OperatorTraits<Operator>;
      OperatorInfo info{Traits::name, {}, {}, Traits::implementations()};
      for (const auto& input : Traits::inputs) {
        info.inputs.push_back({input.name, input.shape, input.types, input.reads});
      }
      for (const auto& axis : Operator::BlockSizes::axes()) info.block_sizes.push_back(axis.name);
      infos.push_back(std::move(info));
    });
    return infos;
  }();
  return all;
}

const OperatorInfo& operator_info(const std::string& name) {
  for (const auto& info : operator_infos()) {
    if (info.name == name) return info;
  }
  fail_call("there is no operator " + name);
}

}  // namespace tessera::programs
