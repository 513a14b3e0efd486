// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/tile/buffer.hpp"
#include "host/tile/compute.hpp"
#include "host/tile/events.hpp"
#include "host/tile/scheduler.hpp"
#include "host/tile/time.hpp"
#include "tessera/tile/machine.hpp"

namespace tessera::tile::detail {

struct LaunchState;

/// What a machine consists of. Everything here belongs to one machine, and one core runs at a time.
struct MachineState {
  MachineOptions options{};
  Report report{};
  Rates rates{};                      ///< of the time model
  Waits waits{};                      ///< of all kernels
  std::vector<Timeline> timelines{};  ///< where MachineOptions::trace is set
  /// Where not null, every kernel's logs go there instead of ending, for those who fit the model.
  std::vector<std::vector<CoreLog>>* core_logs = nullptr;
  std::unique_ptr<Scheduler> scheduler{};
  std::vector<std::shared_ptr<Buffer>> arrays{};
  LaunchState* running = nullptr;
  std::unique_ptr<Compute> compute{};

  MachineState() = default;
  MachineState(const MachineState&) = delete;
  MachineState& operator=(const MachineState&) = delete;
  /// Arrays that somebody still names are of no machine then.
  ~MachineState();
  std::size_t add_to_report(const std::string& name, MemorySpace space);
};

}  // namespace tessera::tile::detail
