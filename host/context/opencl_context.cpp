// SPDX-License-Identifier: Apache-2.0
#include "host/context/open_device.hpp"
#include "host/opencl/runtime.hpp"

namespace tessera::context {

std::shared_ptr<DeviceRuntime> open_device(const ContextOptions& options) {
  return options.plan_for.empty() ? opencl::Runtime::open(options)
                                  : opencl::Runtime::describe(options.plan_for);
}

std::shared_ptr<DeviceRuntime> wrap_device(cl_context context, cl_device_id device,
                                           cl_command_queue queue) {
  return opencl::Runtime::wrap(context, device, queue);
}

}  // namespace tessera::context
