// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "host/dispatch/context_state.hpp"
#include "tessera/context.hpp"

/// The seam between Context and OpenCL: defined once with it (opencl_context.cpp) and once without
/// (host_only.cpp).
namespace tessera::context {

/// The device that the options or the environment select, or the one that plan_for describes;
/// nullptr: none, and none was asked for.
std::shared_ptr<DeviceRuntime> open_device(const ContextOptions& options);
/// A device on the caller's handles: either context and device, or a queue alone.
std::shared_ptr<DeviceRuntime> wrap_device(cl_context context, cl_device_id device,
                                           cl_command_queue queue);

}  // namespace tessera::context
