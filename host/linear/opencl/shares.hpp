// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "host/linear/opencl/plan.hpp"

namespace tessera::linear {

/// Launches of one kernel that multiplies, in one call by a schedule.
struct ProductLaunches {
  std::string kernel;
  std::int64_t times = 0;
  std::int64_t groups = 0;  ///< work-groups of each
  /// Of the machine's time, what the products of a launch take: tiles / (waves x slots x tiles of
  /// the longest group), a slot being what runs one work-group at a time.
  double share = 0.0;
  double flops = 0.0;  ///< of all of them
};

/// Those of a call, in the order of its first launches.
std::vector<ProductLaunches> product_launches(const Request& request, const engines::Engine& engine,
                                              const Schedule& schedule);
/// The share of all of them, weighted by FLOPs: 1 where every slot always has work.
double machine_share(const std::vector<ProductLaunches>& launches);

}  // namespace tessera::linear
