// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "host/linear/opencl/plan.hpp"

namespace tessera::linear {

using ProductLaunches = PlannedLaunches;

/// Those of a call, in the order of its first launches.
std::vector<ProductLaunches> product_launches(const Request& request, const engines::Engine& engine,
                                              const Schedule& schedule);

}  // namespace tessera::linear
