// SPDX-License-Identifier: Apache-2.0
#include "programs/report.hpp"

#include <algorithm>
#include <string_view>

#include "tessera/version.hpp"

extern char** environ;

namespace tessera::programs {

Json to_json(const std::vector<NamedValue>& values) {
  Json result = Json::object();
  for (const auto& [name, value] : values) result[name] = value;
  return result;
}

Json to_json(const Dispatch& dispatch) {
  Json refused = Json::array();
  for (const auto& refusal : dispatch.refused) {
    refused.push_back({{"implementation", refusal.implementation}, {"reason", refusal.reason}});
  }
  return {{"implementation", dispatch.implementation},
          {"schedule", dispatch.schedule},
          {"device", dispatch.device},
          {"driver", dispatch.driver},
          {"block_sizes", to_json(dispatch.block_sizes)},
          {"knobs", to_json(dispatch.knobs)},
          {"block_source", to_string(dispatch.block_source)},
          {"block_reason", dispatch.block_reason},
          {"refused", refused},
          {"warnings", dispatch.warnings},
          {"notes", dispatch.notes},
          {"extra_bytes_peak", dispatch.workspace_bytes + dispatch.staged_bytes}};
}

Json to_json(const DeviceInfo& device) {
  return {{"selector",
           std::to_string(device.platform_index) + ":" + std::to_string(device.device_index)},
          {"name", device.name},
          {"platform", device.platform},
          {"vendor", device.vendor},
          {"driver", device.driver},
          {"version", device.version},
          {"type", device.type},
          {"compute_units", device.compute_units},
          {"global_memory_bytes", device.global_memory_bytes},
          {"max_allocation_bytes", device.max_allocation_bytes},
          {"local_memory_bytes", device.local_memory_bytes},
          {"max_work_group_size", device.max_work_group_size},
          {"shares_host_memory", device.shares_host_memory}};
}

Json provenance() {
  Json environment = Json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    for (const std::string_view prefix : {"POCL_", "OCL_", "CUDA_", "TESSERA_"}) {
      const auto equals = text.find('=');
      if (text.starts_with(prefix) && equals != std::string_view::npos) {
        environment[std::string(text.substr(0, equals))] = text.substr(equals + 1);
      }
    }
  }
  return {{"version", version()},
          {"revision", revision()},
          {"build", build_description()},
          {"environment", environment}};
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void add_distinct(std::vector<std::string>& list, const std::vector<std::string>& more) {
  for (const auto& text : more) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
  }
}

}  // namespace tessera::programs
