// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "host/tile/races.hpp"
#include "tessera/tile/kernel.hpp"

// Semaphores: what they hold, and what is on its way to them.
namespace tessera::tile::detail {

struct Buffer;
struct CoreState;
struct Transfer;

/// What a semaphore was given, until it is taken.
struct Arrival {
  std::int64_t amount = 0;
  Clock clock{};
  std::shared_ptr<Buffer> from{};  ///< of a copy: what it is no longer in flight of then
  std::shared_ptr<Buffer> to{};
};

struct SemaphoreState : std::enable_shared_from_this<SemaphoreState> {
  std::string name{};
  SemaphoreKind kind = SemaphoreKind::regular;
  int agent = 0;
  int id = 0;  ///< of its launch
  std::int64_t count = 0;
  std::deque<Arrival> arrivals{};
  /// Copies that were started and will signal it, oldest first.
  std::vector<std::shared_ptr<Transfer>> in_flight{};
  const std::vector<SemaphoreState*>* siblings = nullptr;
  std::string ended_with{};  ///< "its run_scoped" or "kernel 'add'"; empty while it lives
};

/// The state of a semaphore of the running core. Throws TileError (usage) for one without a value,
/// one that has ended, or another core's; `what` takes it.
SemaphoreState& own_semaphore(const CoreState& core,
                              const std::shared_ptr<SemaphoreState>& semaphore,
                              const std::function<std::string()>& what);
/// The same, and throws for a semaphore of the other kind.
SemaphoreState& require_kind(const CoreState& core, const Semaphore& semaphore, SemaphoreKind kind,
                             const std::function<std::string()>& what);
/// Nobody may use it from now on; `with` what it has ended.
void end(SemaphoreState& semaphore, const std::string& with);
/// The agent that `target` is. Throws TileError (bounds).
std::size_t agent_of(const CoreState& core, const Target& target);
/// The same semaphore of another agent. Throws TileError (usage) for one of run_scoped.
SemaphoreState* sibling(const SemaphoreState& semaphore, const CoreState& core, std::size_t agent);
/// Until the semaphore holds `amount`, which is taken. Moves what is in flight to it, as the DMA
/// mode says.
void take(SemaphoreState& semaphore, std::int64_t amount);
void give(SemaphoreState& semaphore, Arrival arrival);
/// Throws for semaphores that are not zero and copies that nobody waited for.
void check_at_exit(const SemaphoreState& semaphore, const CoreState& core);

}  // namespace tessera::tile::detail
