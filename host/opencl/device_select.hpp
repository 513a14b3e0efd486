// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/opencl.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tessera/context.hpp"

namespace tessera::opencl {

/// A device as the drivers report it.
struct FoundDevice {
  cl_platform_id platform = nullptr;
  cl_device_id id = nullptr;
  cl_device_type type = 0;
  DeviceInfo info{};
  /// Why the library cannot run on it ("it has no compiler"); empty: it can.
  std::string unusable{};
};

/// Every device of every driver, in the order of their indices. Empty without a driver.
std::vector<FoundDevice> find_devices();

/// Reads what a driver says of one device; throws Error when it refuses to say.
FoundDevice describe_device(cl_device_id id);

/// The device that `wanted` (text or "p:d"), else TESSERA_DEVICE, else the default order (GPU,
/// accelerator, CPU) selects. Nothing: none was asked for and none can be used. Throws Error
/// device_not_found, which lists what is there.
std::optional<FoundDevice> select_device(const std::string& wanted);

/// CL_DEVICE_* as T; `fallback` where the driver does not answer.
template <class T>
T device_value(cl_device_id id, cl_device_info what, T fallback) {
  T value{};
  return clGetDeviceInfo(id, what, sizeof(value), &value, nullptr) == CL_SUCCESS ? value : fallback;
}
std::string device_text(cl_device_id id, cl_device_info what);

}  // namespace tessera::opencl
