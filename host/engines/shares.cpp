// SPDX-License-Identifier: Apache-2.0
#include "host/engines/shares.hpp"

#include <algorithm>

namespace tessera::engines {

std::int64_t rounds_of(std::int64_t groups, std::int64_t slots) {
  return (groups + slots - 1) / slots;
}

double room_of(std::int64_t groups, std::int64_t slots, double longest) {
  return static_cast<double>(rounds_of(groups, slots)) * static_cast<double>(slots) * longest;
}

double room_of(std::int64_t groups, std::int64_t slots, double longest, double work) {
  const double mean = work / static_cast<double>(std::max<std::int64_t>(groups, 1));
  return static_cast<double>(slots) *
         (static_cast<double>(rounds_of(groups, slots) - 1) * mean + std::max(longest, mean));
}

double machine_share(const std::vector<PlannedLaunches>& launches) {
  double flops = 0.0, time = 0.0;
  for (const auto& launch : launches) {
    if (launch.share <= 0.0) continue;  // of no element
    flops += launch.flops;
    time += launch.flops / launch.share;
  }
  return flops > 0.0 ? flops / time : 1.0;
}

}  // namespace tessera::engines
