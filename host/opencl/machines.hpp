// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "host/opencl/device_facts.hpp"

namespace tessera::opencl {

/// A machine that need not be here, to plan for.
struct Machine {
  DeviceInfo info{};  ///< its name is what ContextOptions::plan_for takes
  DeviceFacts facts{};
};

/// CPUs of 2 to 192 cores, by number, then GPUs.
const std::vector<Machine>& machines();
/// The one of that name. Throws Error device_not_found, which lists the names.
const Machine& machine_of(const std::string& name);

}  // namespace tessera::opencl
