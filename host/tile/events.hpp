// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "host/tile/races.hpp"
#include "tessera/tile/work.hpp"

// What each core did, in its own order; from these the time model says when. Which core the
// scheduler let go first does not show in them.
namespace tessera::tile {

struct WorkEvent {
  Work work{};
};

/// A copy was started.
struct CopyEvent {
  std::size_t from_buffer = 0;  ///< of Report::buffers
  std::size_t to_buffer = 0;
  MemorySpace from_space = MemorySpace::hbm;
  MemorySpace to_space = MemorySpace::hbm;
  int to_device = 0;        ///< other than the issuer's: a remote copy
  std::int64_t bytes = 0;   ///< what the memory system moves
  std::int64_t amount = 0;  ///< what its semaphores count
  int send = -1;            ///< semaphore that counts it when it has left; -1: none
  int receive = -1;         ///< semaphore that counts it when it is there
  int priority = 0;
};

struct SignalEvent {
  int semaphore = 0;
  std::int64_t amount = 0;
};

/// Waited until the semaphore held `amount`, and took it.
struct TakeEvent {
  int semaphore = 0;
  std::int64_t amount = 0;
};

/// Came to a barrier of `members` cores (0: of all).
struct BarrierEvent {
  int group = -1;  ///< -1: of all cores; else of one SparseCore's subcores
  int members = 0;
};

/// A step of a grid begins, for the timeline and the cost of a step.
struct StepEvent {
  std::shared_ptr<const Place> place{};
};

using Event = std::variant<WorkEvent, CopyEvent, SignalEvent, TakeEvent, BarrierEvent, StepEvent>;

/// Everything one core did in one kernel.
struct CoreLog {
  int device = 0;
  int core = 0;             ///< of all cores of the device that run the kernel
  bool tensor_core = true;  ///< else a subcore of a SparseCore
  std::vector<Event> events{};
};

}  // namespace tessera::tile
