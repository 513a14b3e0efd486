// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/tile/buffer.hpp"
#include "host/tile/core.hpp"
#include "host/tile/launch.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/semaphore.hpp"
#include "host/tile/transfer.hpp"
#include "tessera/tile/copies.hpp"

namespace tessera::tile {
namespace detail {

void require_kind(const CoreState& core, const Semaphore& semaphore, SemaphoreKind kind,
                  const std::function<std::string()>& what) {
  if (semaphore.state() != nullptr && semaphore.state()->agent != core.agent) {
    throw TileError(ErrorKind::usage,
                    fmt::format("{}: {} with '{}' of another core; signal it as a Target",
                                core.place->text(), what(), semaphore.state()->name));
  }
  if (semaphore.state() != nullptr && semaphore.state()->kind == kind) return;
  throw TileError(ErrorKind::usage,
                  fmt::format("{}: {} takes a {} semaphore", core.place->text(), what(),
                              kind == SemaphoreKind::dma ? "DMA" : "regular"));
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
    for (Buffer* buffer : {first.from, first.to}) {
      if (buffer != nullptr) --buffer->in_flight;
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
  detail::require_kind(core, semaphore, detail::SemaphoreKind::regular,
                       [] { return "semaphore_signal"; });
  auto* state = target ? detail::sibling(*semaphore.state(), core, detail::agent_of(core, *target))
                       : semaphore.state();
  detail::give(*state, {.amount = amount, .clock = core.clock});
  core.tick();
  core.note(SignalEvent{state->id, amount});
  core.machine->scheduler->yield();
}

void semaphore_wait(const Semaphore& semaphore, std::int64_t amount) {
  detail::require_kind(detail::current_core("semaphore_wait"), semaphore,
                       detail::SemaphoreKind::regular, [] { return "semaphore_wait"; });
  detail::take(*semaphore.state(), amount);
}

std::int64_t semaphore_read(const Semaphore& semaphore) {
  const detail::CoreState& core = detail::current_core("semaphore_read");
  if (semaphore.state() == nullptr) {
    throw TileError(ErrorKind::usage, core.place->text() + ": semaphore_read of no semaphore");
  }
  return semaphore.state()->count;
}

}  // namespace tessera::tile
