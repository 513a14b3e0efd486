// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "host/linear/opencl/plan.hpp"

namespace tessera::linear {

/// What a call is predicted to take (docs/performance.md, "What a schedule costs"). Its times are
/// to be compared with those of other schedules on the same device, not with a clock.
struct Cost {
  double multiply = 0.0;  ///< seconds: FLOPs / (those of the machine in a second * the share of it)
  double memory = 0.0;    ///< seconds: bytes / those of the memory in a second
  double launches = 0.0;  ///< seconds that the device waits for launches
  double bytes = 0.0;     ///< that the caches do not have
  double shared = 0.0;    ///< of `memory`: lines of grad_w that two work-groups write parts of
  std::vector<PlannedLaunches> products{};  ///< in the order of the first launch of each kernel
  double seconds() const { return multiply + memory + launches; }
};

/// Of a schedule that is complete, but for scratch_words.
Cost cost_of(const Request& request, const engines::Engine& engine, const Schedule& schedule);

}  // namespace tessera::linear
