// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/device_select.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "host/dispatch/guarded.hpp"
#include "host/opencl/errors.hpp"
#include "host/opencl/first_use.hpp"
#include "host/opencl/runtime.hpp"

namespace tessera {
namespace opencl {
namespace {

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\0' || text.back() == ' ')) text.pop_back();
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

std::string platform_text(cl_platform_id id, cl_platform_info what) {
  std::size_t size = 0;
  if (clGetPlatformInfo(id, what, 0, nullptr, &size) != CL_SUCCESS) return {};
  std::string text(size, '\0');
  if (clGetPlatformInfo(id, what, size, text.data(), nullptr) != CL_SUCCESS) return {};
  return trimmed(std::move(text));
}

std::string lower(std::string text) {
  for (auto& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

const char* type_name(cl_device_type type) {
  if (type & CL_DEVICE_TYPE_GPU) return "gpu";
  if (type & CL_DEVICE_TYPE_ACCELERATOR) return "accelerator";
  if (type & CL_DEVICE_TYPE_CPU) return "cpu";
  return "custom";
}

/// Place in the default order; custom devices run built-in kernels only and are never chosen.
int default_rank(cl_device_type type) {
  if (type & CL_DEVICE_TYPE_GPU) return 0;
  if (type & CL_DEVICE_TYPE_ACCELERATOR) return 1;
  if (type & CL_DEVICE_TYPE_CPU) return 2;
  return 3;
}

/// "OpenCL 1.2 ..." as 102.
int version_number(const std::string& version) {
  int major = 0;
  int minor = 0;
  const auto digits = version.find_first_of("0123456789");
  if (digits == std::string::npos) return 0;
  const char* end = version.data() + version.size();
  const auto first = std::from_chars(version.data() + digits, end, major);
  if (first.ptr < end && *first.ptr == '.') std::from_chars(first.ptr + 1, end, minor);
  return major * 100 + minor;
}

std::string why_unusable(cl_device_id id, const FoundDevice& device) {
  if (!device_value<cl_bool>(id, CL_DEVICE_AVAILABLE, CL_FALSE)) return "it is not available";
  if (!device_value<cl_bool>(id, CL_DEVICE_COMPILER_AVAILABLE, CL_FALSE)) {
    return "it has no compiler";
  }
  if (!device_value<cl_bool>(id, CL_DEVICE_ENDIAN_LITTLE, CL_FALSE)) return "it is big-endian";
  if (version_number(device.info.version) < 102) return "it is older than OpenCL 1.2";
  return {};
}

std::vector<cl_platform_id> platforms() {
  Runtime::uses_driver();
  cl_uint count = 0;
  if (clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS || count == 0) return {};
  std::vector<cl_platform_id> ids(count);
  if (clGetPlatformIDs(count, ids.data(), nullptr) != CL_SUCCESS) return {};
  return ids;
}

std::vector<cl_device_id> devices_of(cl_platform_id platform) {
  cl_uint count = 0;
  if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS ||
      count == 0) {
    return {};
  }
  std::vector<cl_device_id> ids(count);
  if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr) != CL_SUCCESS) {
    return {};
  }
  return ids;
}

std::vector<FoundDevice> list_devices() {
  std::vector<FoundDevice> found;
  int platform_index = 0;
  for (auto platform : platforms()) {
    int device_index = 0;
    for (auto id : devices_of(platform)) {
      try {
        auto device = describe_device(id);
        device.info.platform_index = platform_index;
        device.info.device_index = device_index;
        found.push_back(std::move(device));
      } catch (const Error&) {
        // A device that cannot even tell its type is as good as absent; the indices keep its place.
      }
      ++device_index;
    }
    ++platform_index;
  }
  return found;
}

std::string listing(const std::vector<FoundDevice>& found) {
  if (found.empty()) {
    return "no OpenCL device was found; install a driver (Debian: pocl-opencl-icd runs on any CPU)";
  }
  std::string text = "devices found: ";
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& device = found[i];
    if (i > 0) text += ", ";
    text += std::to_string(device.info.platform_index) + ":" +
            std::to_string(device.info.device_index) + " \"" + device.info.name + "\" (" +
            device.info.platform + ", " + device.info.type +
            (device.unusable.empty() ? "" : ", unusable: " + device.unusable) + ")";
  }
  return text;
}

/// "p:d" as two indices.
std::optional<std::pair<int, int>> parse_indices(const std::string& text) {
  std::pair<int, int> indices;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, indices.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, indices.second);
  if (second.ec != std::errc() || second.ptr != end) return std::nullopt;
  return indices;
}

bool matches(const FoundDevice& device, const std::string& wanted) {
  if (const auto indices = parse_indices(wanted)) {
    return device.info.platform_index == indices->first &&
           device.info.device_index == indices->second;
  }
  const std::string needle = lower(wanted);
  return lower(device.info.name).find(needle) != std::string::npos ||
         lower(device.info.platform).find(needle) != std::string::npos;
}

}  // namespace

std::string device_text(cl_device_id id, cl_device_info what) {
  std::size_t size = 0;
  if (clGetDeviceInfo(id, what, 0, nullptr, &size) != CL_SUCCESS) return {};
  std::string text(size, '\0');
  if (clGetDeviceInfo(id, what, size, text.data(), nullptr) != CL_SUCCESS) return {};
  return trimmed(std::move(text));
}

FoundDevice describe_device(cl_device_id id) {
  FoundDevice device;
  device.id = id;
  // The one question every driver answers for a live handle: a refusal here is worth an error.
  check(clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof(device.type), &device.type, nullptr),
        "clGetDeviceInfo", {}, "reading the device type");
  check(clGetDeviceInfo(id, CL_DEVICE_PLATFORM, sizeof(device.platform), &device.platform, nullptr),
        "clGetDeviceInfo", {}, "reading the platform of a device");
  auto& info = device.info;
  info.platform = platform_text(device.platform, CL_PLATFORM_NAME);
  info.name = device_text(id, CL_DEVICE_NAME);
  info.vendor = device_text(id, CL_DEVICE_VENDOR);
  info.driver = device_text(id, CL_DRIVER_VERSION);
  info.version = device_text(id, CL_DEVICE_VERSION);
  info.type = type_name(device.type);
  info.platform_index = -1;
  info.device_index = -1;
  info.compute_units = device_value<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS, 1);
  info.global_memory_bytes =
      static_cast<std::int64_t>(device_value<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE, 0));
  info.max_allocation_bytes =
      static_cast<std::int64_t>(device_value<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 0));
  info.local_memory_bytes =
      static_cast<std::int64_t>(device_value<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE, 0));
  info.max_work_group_size = static_cast<std::int64_t>(
      device_value<std::size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, std::size_t{1}));
  // An integrated GPU shares memory too, but asks for alignments that a caller's array need not
  // have, and then copies silently; only CPU devices take any host pointer as it is.
  info.shares_host_memory =
      (device.type & CL_DEVICE_TYPE_CPU) != 0 &&
      device_value<cl_bool>(id, CL_DEVICE_HOST_UNIFIED_MEMORY, CL_FALSE) != CL_FALSE;
  device.unusable = why_unusable(id, device);
  return device;
}

std::vector<FoundDevice> find_devices() {
  std::vector<FoundDevice> found;
  first_use(nullptr, [&] { found = list_devices(); });  // nullptr: of all drivers at once
  return found;
}

std::optional<FoundDevice> select_device(const std::string& option) {
  std::string wanted = option;
  const char* source = "ContextOptions::device";
  if (wanted.empty()) {
    const char* variable = std::getenv("TESSERA_DEVICE");
    if (variable != nullptr) wanted = variable;
    source = "TESSERA_DEVICE";
  }
  const auto found = find_devices();
  const FoundDevice* best = nullptr;
  const FoundDevice* unusable = nullptr;
  for (const auto& device : found) {
    if (!wanted.empty() && !matches(device, wanted)) continue;
    if (!device.unusable.empty() || default_rank(device.type) > 2) {
      unusable = &device;
      continue;
    }
    if (best == nullptr || default_rank(device.type) < default_rank(best->type)) best = &device;
  }
  if (best != nullptr) return *best;
  if (wanted.empty()) return std::nullopt;
  const std::string asked = std::string(source) + " is \"" + wanted + "\"";
  if (unusable != nullptr) {
    throw Error(ErrorCode::device_not_found,
                asked + ", which is \"" + unusable->info.name + "\", but " +
                    (unusable->unusable.empty() ? "it is a custom device" : unusable->unusable) +
                    "; " + listing(found));
  }
  throw Error(ErrorCode::device_not_found,
              asked +
                  ", which matches no device; give text found in a platform or device name, or "
                  "\"p:d\"; " +
                  listing(found));
}

}  // namespace opencl

std::vector<DeviceInfo> devices() try {
  std::vector<DeviceInfo> infos;
  for (auto& device : opencl::find_devices()) infos.push_back(std::move(device.info));
  return infos;
} catch (const std::bad_alloc&) {
  dispatch::throw_no_memory("devices");
}

}  // namespace tessera
