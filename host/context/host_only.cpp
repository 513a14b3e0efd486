// SPDX-License-Identifier: Apache-2.0
#ifndef TESSERA_OPENCL

#include <cstdlib>

#include "host/context/open_device.hpp"

namespace tessera {

namespace context {

std::shared_ptr<DeviceRuntime> open_device(const ContextOptions& options) {
  if (!options.plan_for.empty()) {
    throw Error(ErrorCode::device_not_found,
                "ContextOptions::plan_for is \"" + options.plan_for +
                    "\", but this library was built without OpenCL (TESSERA_OPENCL=OFF), whose "
                    "devices it describes; leave it empty");
  }
  std::string wanted = options.device;
  if (wanted.empty()) {
    const char* variable = std::getenv("TESSERA_DEVICE");
    if (variable != nullptr) wanted = variable;
  }
  if (!wanted.empty()) {
    throw Error(ErrorCode::device_not_found,
                "device \"" + wanted +
                    "\" was asked for, but this library was built without OpenCL "
                    "(TESSERA_OPENCL=OFF); unset ContextOptions::device and TESSERA_DEVICE");
  }
  return nullptr;
}

std::shared_ptr<DeviceRuntime> wrap_device(cl_context, cl_device_id, cl_command_queue) {
  throw Error(ErrorCode::unsupported,
              "this library was built without OpenCL (TESSERA_OPENCL=OFF) and cannot use OpenCL "
              "handles");
}

}  // namespace context

std::vector<DeviceInfo> devices() { return {}; }

}  // namespace tessera

#endif
