// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "host/tile/buffer.hpp"
#include "host/tile/core.hpp"
#include "host/tile/launch.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/semaphore.hpp"
#include "host/tile/transfer.hpp"
#include "tessera/tile/copies.hpp"

namespace tessera::tile {
namespace detail {

SemaphoreState& own_semaphore(const CoreState& core,
                              const std::shared_ptr<SemaphoreState>& semaphore,
                              const std::function<std::string()>& what) {
  const auto refuse = [&](const std::string& why) {
    throw TileError(ErrorKind::usage, located(core, what()) + ": " + why);
  };
  if (semaphore == nullptr) {
    refuse(
        "no semaphore, but one made without a value; take those of the kernel's arguments or of "
        "run_scoped");
  }
  if (!semaphore->ended_with.empty()) {
    refuse(fmt::format("semaphore '{}' has ended with {}; it is not kept longer", semaphore->name,
                       semaphore->ended_with));
  }
  if (semaphore->agent != core.agent) {
    refuse(
        fmt::format("semaphore '{}' is of another core; signal it as a Target", semaphore->name));
  }
  return *semaphore;
}

SemaphoreState& require_kind(const CoreState& core, const Semaphore& semaphore, SemaphoreKind kind,
                             const std::function<std::string()>& what) {
  SemaphoreState& own = own_semaphore(core, semaphore.state(), what);
  if (own.kind == kind) return own;
  throw TileError(ErrorKind::usage,
                  fmt::format("{} takes a {} semaphore, which '{}' is not", located(core, what()),
                              kind == SemaphoreKind::dma ? "DMA" : "regular", own.name));
}

void end(SemaphoreState& semaphore, const std::string& with) {
  semaphore.ended_with = with;
  semaphore.siblings = nullptr;
  semaphore.in_flight.clear();  // copies name their semaphores
  semaphore.arrivals.clear();
}

std::size_t agent_of(const CoreState& core, const Target& target) {
  const LaunchState& launch = *core.launch;
  const int devices = core.machine->options.devices;
  const int part = target.mesh < 0 ? core.part : target.mesh;
  const auto refuse = [&](const std::string& what) {
    throw TileError(ErrorKind::bounds, fmt::format("{}: target {}", core.place->text(), what));
  };
  if (part >= static_cast<int>(launch.parts.size())) {
    refuse(fmt::format("mesh {} is none of {}", part, launch.parts.size()));
  }
  const Mesh& mesh = launch.parts[static_cast<std::size_t>(part)];
  if (target.device < 0 || target.device >= devices || target.core < 0 ||
      target.core >= mesh.cores || target.subcore < 0 || target.subcore >= mesh.subcores) {
    refuse(fmt::format(
        "device {} core {} subcore {} is none of {} devices with {} cores of {} "
        "subcores",
        target.device, target.core, target.subcore, devices, mesh.cores, mesh.subcores));
  }
  return static_cast<std::size_t>(target.device * launch.per_device +
                                  launch.first_of_part[static_cast<std::size_t>(part)] +
                                  target.core * mesh.subcores + target.subcore);
}

SemaphoreState* sibling(const SemaphoreState& semaphore, const CoreState& core, std::size_t agent) {
  if (semaphore.siblings == nullptr) {
    throw TileError(ErrorKind::usage,
                    located(core, "'" + semaphore.name + "'") +
                        " is from run_scoped, which others do not have; declare it as scratch");
  }
  return (*semaphore.siblings)[agent];
}

void give(SemaphoreState& semaphore, Arrival arrival) {
  semaphore.count += arrival.amount;
  semaphore.arrivals.push_back(std::move(arrival));
}

void take(SemaphoreState& semaphore, std::int64_t amount) {
  CoreState& core = current_core("a wait");
  if (amount < 0) {
    throw TileError(ErrorKind::usage,
                    fmt::format("{}: waiting for {} is waiting for nothing",
                                located(core, "'" + semaphore.name + "'"), amount));
  }
  const auto move_in_flight = [&] {
    while (semaphore.count < amount && !semaphore.in_flight.empty()) {
      move_data(std::shared_ptr<Transfer>(semaphore.in_flight.back()));
    }
    return semaphore.count >= amount;
  };
  while (!move_in_flight()) {
    core.machine->scheduler->wait_until(
        [&] { return semaphore.count >= amount || !semaphore.in_flight.empty(); },
        [&] {
          return fmt::format("{} of {}semaphore '{}' of {} in kernel '{}', which holds {}{}",
                             amount, semaphore.kind == SemaphoreKind::dma ? "DMA " : "",
                             semaphore.name, core.place->text(), core.launch->name, semaphore.count,
                             semaphore.kind == SemaphoreKind::dma ? " bytes" : "");
        });
  }
  const std::int64_t wanted = amount;
  semaphore.count -= amount;
  // First come, first taken: who waits for one copy of two knows of the first alone.
  while (amount > 0) {
    Arrival& first = semaphore.arrivals.front();
    join(core.clock, first.clock);
    const std::int64_t part = std::min(amount, first.amount);
    first.amount -= part;
    amount -= part;
    if (first.amount > 0) continue;
    for (const auto* buffer : {&first.from, &first.to}) {
      if (*buffer != nullptr) --(*buffer)->in_flight;
    }
    semaphore.arrivals.pop_front();
  }
  core.tick();
  core.record(ScheduleEvent::Kind::wait, nullptr, &semaphore);
  core.note(TakeEvent{semaphore.id, wanted});
}

void check_at_exit(const SemaphoreState& semaphore, const CoreState& core) {
  if (!semaphore.in_flight.empty()) {
    const Transfer& transfer = *semaphore.in_flight.front();
    throw TileError(
        ErrorKind::unfinished_dma,
        fmt::format("{} of kernel '{}', started by {}: nobody waits for it; wait for "
                    "semaphore '{}'",
                    title(transfer), core.launch->name, transfer.place->text(), semaphore.name),
        {}, transfer.to.buffer->name);
  }
  if (semaphore.count == 0) return;
  const bool dma = semaphore.kind == SemaphoreKind::dma;
  throw TileError(dma ? ErrorKind::unfinished_dma : ErrorKind::semaphore,
                  fmt::format("{}semaphore '{}' of {} in kernel '{}' ends with {}{}: {}",
                              dma ? "DMA " : "", semaphore.name, core.place->core,
                              core.launch->name, semaphore.count, dma ? " bytes" : "",
                              dma ? "a copy was started that nobody waits for"
                                  : "signals and waits must come to the same"),
                  {}, semaphore.name);
}

}  // namespace detail

void semaphore_signal(const Semaphore& semaphore, std::int64_t amount,
                      std::optional<Target> target) {
  detail::CoreState& core = detail::current_core("semaphore_signal");
  auto* state = &detail::require_kind(core, semaphore, detail::SemaphoreKind::regular,
                                      [] { return "semaphore_signal"; });
  const auto where = [&] { return detail::located(core, "'" + state->name + "'"); };
  if (amount < 0) {
    throw TileError(ErrorKind::usage,
                    fmt::format("{}: semaphore_signal of {}: only semaphore_wait takes from a "
                                "semaphore",
                                where(), amount));
  }
  if (target) state = detail::sibling(*state, core, detail::agent_of(core, *target));
  if (amount > std::numeric_limits<std::int64_t>::max() - state->count) {
    throw TileError(ErrorKind::semaphore,
                    fmt::format("{}: semaphore_signal of {} to {} is more than 64 bits count",
                                where(), amount, state->count),
                    {}, state->name);
  }
  detail::give(*state, {.amount = amount, .clock = core.clock});
  core.tick();
  core.note(SignalEvent{state->id, amount});
  core.machine->scheduler->yield();
}

void semaphore_wait(const Semaphore& semaphore, std::int64_t amount) {
  detail::take(
      detail::require_kind(detail::current_core("semaphore_wait"), semaphore,
                           detail::SemaphoreKind::regular, [] { return "semaphore_wait"; }),
      amount);
}

std::int64_t semaphore_read(const Semaphore& semaphore) {
  const detail::CoreState& core = detail::current_core("semaphore_read");
  detail::SemaphoreState& state =
      detail::own_semaphore(core, semaphore.state(), [] { return "semaphore_read"; });
  // A TPU's copies end whether somebody waits or not.
  const bool again = core.machine->scheduler->poll([&] {
    return fmt::format(
        "{}semaphore '{}' of {} in kernel '{}', which semaphore_read finds at {} "
        "again and again",
        state.kind == detail::SemaphoreKind::dma ? "DMA " : "", state.name, core.place->text(),
        core.launch->name, state.count);
  });
  if (again && !state.in_flight.empty()) {
    detail::move_data(std::shared_ptr<detail::Transfer>(state.in_flight.back()));
    core.machine->scheduler->advance();
  }
  return state.count;
}

}  // namespace tessera::tile
