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

namespace {

/// Beginnings of the names of variables that steer OpenCL: its loader and layers, drivers, and this
/// library. None is so short that another program's password may begin like it.
constexpr std::string_view steering[] = {
    "OCL_", "OPENCL_LAYERS", "TESSERA_", "POCL_", "CUDA_",
    // AMD's ROCm.
    "AMD_", "GPU_", "HIP_VISIBLE_DEVICES", "HSA_", "ROCR_", "ROC_",
    // Intel's drivers and their compiler.
    "CL_CONFIG_", "IGC_", "NEOReadDebugKeys", "NEO_", "ZE_",
    // Mesa's rusticl and clover, and what is below them.
    "CLOVER_DEVICE_", "CLOVER_EXTRA_", "GALLIUM_", "INTEL_DEBUG", "LP_DEBUG", "LP_NATIVE_",
    "LP_NUM_THREADS", "LP_PERF", "MESA_", "NIR_", "R600_DEBUG", "RUSTICL_"};

}  // namespace

Json provenance() {
  Json environment = Json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    const auto name = text.substr(0, equals);
    const bool steers =
        std::ranges::any_of(steering, [&](auto prefix) { return name.starts_with(prefix); });
    if (steers && equals != std::string_view::npos) {
      environment[std::string(name)] = text.substr(equals + 1);
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
