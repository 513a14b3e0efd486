// SPDX-License-Identifier: Apache-2.0
#include "tessera/execution.hpp"

namespace tessera {

const char* to_string(Pass pass) noexcept {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::backward:
      return "backward";
    case Pass::value_and_grad:
      return "value_and_grad";
    case Pass::forward_partial:
      return "forward_partial";
  }
  return "?";
}

const char* to_string(Reduction reduction) noexcept {
  const auto at = static_cast<std::size_t>(reduction);
  return at < reduction_names.size() ? reduction_names[at] : "?";
}

const char* to_string(BlockSource source) noexcept {
  switch (source) {
    case BlockSource::caller:
      return "caller";
    case BlockSource::tuned_file:
      return "tuned_file";
    case BlockSource::tuned_table:
      return "tuned_table";
    case BlockSource::device_class:
      return "device_class";
    case BlockSource::heuristic:
      return "heuristic";
    case BlockSource::fallback:
      return "fallback";
  }
  return "?";
}

namespace {

void append(std::string& text, const std::vector<NamedValue>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ' ';
    text += values[i].name + '=' + std::to_string(values[i].value);
  }
}

}  // namespace

std::string to_string(const Dispatch& dispatch) {
  std::string text = dispatch.implementation.empty() ? "nothing ran" : dispatch.implementation;
  if (!dispatch.device.empty()) text += " on " + dispatch.device;
  if (!dispatch.schedule.empty()) text += ", schedule " + dispatch.schedule;
  if (!dispatch.block_sizes.empty()) {
    text += ", blocks ";
    append(text, dispatch.block_sizes);
    text += std::string(" (") + to_string(dispatch.block_source);
    if (!dispatch.block_reason.empty()) text += ": " + dispatch.block_reason;
    text += ')';
  }
  if (!dispatch.knobs.empty()) {
    text += ", knobs ";
    append(text, dispatch.knobs);
  }
  for (const auto& refusal : dispatch.refused) {
    text += ", refused by " + refusal.implementation;
  }
  for (std::size_t i = 0; i < dispatch.shards.size(); ++i) {
    text += "; shard " + std::to_string(i) + ": " + to_string(dispatch.shards[i]);
  }
  return text;
}

}  // namespace tessera
