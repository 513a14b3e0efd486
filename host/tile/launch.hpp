// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/tile/core.hpp"
#include "host/tile/races.hpp"
#include "tessera/tile/kernel.hpp"

// A kernel while it runs: all its cores, and where they meet.
namespace tessera::tile::detail {

/// Where cores wait for each other.
struct Barrier {
  int waiting = 0;
  std::int64_t completed = 0;
  Clock gathered{};  ///< of those who have come to the next
  Clock last{};      ///< of all who came to the last completed
};

/// A kernel while it runs.
struct LaunchState {
  MachineState* machine = nullptr;
  std::string name{};
  std::vector<Mesh> parts{};
  std::vector<int> first_of_part{};  ///< agent of a device
  int per_device = 1;                ///< agents
  std::vector<CoreState> agents{};
  ClockSlots slots{1};
  int semaphores = 0;  ///< made so far, run_scoped's among them
  Barrier barrier{};
  std::vector<Barrier> subcore_barriers{};  ///< by the agent of a SparseCore's first subcore
};

/// Adds a kernel that has ended to the report's time; its cores' logs end here.
void model_time(LaunchState& launch);

}  // namespace tessera::tile::detail
