// SPDX-License-Identifier: Apache-2.0
#include "tessera/tile/copies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "host/tile/state.hpp"
#include "host/tile/text.hpp"

namespace tessera::tile {
namespace detail {
namespace {

void check_copy(const CoreState& core, const Transfer& transfer) {
  const Buffer& from = *transfer.from.buffer;
  const Buffer& to = *transfer.to.buffer;
  const auto where = [&] { return located(core, title(transfer)); };
  if (from.type != to.type) {
    throw TileError(ErrorKind::usage, fmt::format("{}: {} cannot be copied into {}", where(),
                                                  to_string(from.type), to_string(to.type)));
  }
  const Shape from_extents = extents_of(transfer.from);
  const Shape to_extents = extents_of(transfer.to);
  if (from_extents != to_extents) {
    throw TileError(ErrorKind::usage,
                    fmt::format("{}: {} elements cannot be copied into {}; slice one of them",
                                where(), to_text(from_extents), to_text(to_extents)));
  }
  if (transfer.options.priority != 0 && transfer.options.priority != 1) {
    throw TileError(ErrorKind::usage, fmt::format("{}: priority {} is neither 0 nor 1", where(),
                                                  transfer.options.priority));
  }
  if (!to.writable) {
    throw TileError(ErrorKind::usage,
                    fmt::format("{}: '{}' is a constant view of the caller's memory; give the "
                                "machine a MutableView",
                                where(), to.name));
  }
  if (!core.machine->options.check_layout) return;
  for (const Region* side : {&transfer.from, &transfer.to}) {
    const Buffer& buffer = *side->buffer;
    // Scalars lie in SMEM word by word, without tiles.
    if (buffer.space == MemorySpace::smem) continue;
    auto violations = check_dma_slice(core.machine->options.chip, buffer.name, buffer.shape,
                                      buffer.type, side->slices);
    for (auto& violation : violations) violation.message += " (" + where() + ")";
    require(violations);
  }
}

template <class What>
void require_kind(const CoreState& core, const Semaphore& semaphore, SemaphoreKind kind,
                  const What& what) {
  if (semaphore.state() != nullptr && semaphore.state()->kind == kind) return;
  throw TileError(ErrorKind::usage,
                  fmt::format("{}: {} takes a {} semaphore", core.place->text(), what(),
                              kind == SemaphoreKind::dma ? "DMA" : "regular"));
}

/// The agent that `target` is.
std::size_t agent_of(const CoreState& core, const Target& target) {
  const int cores = core.launch->cores;
  const int devices = core.machine->options.devices;
  if (target.device < 0 || target.device >= devices || target.core < 0 || target.core >= cores) {
    throw TileError(ErrorKind::bounds,
                    fmt::format("{}: target device {} core {} is none of {} devices with {} cores",
                                core.place->text(), target.device, target.core, devices, cores));
  }
  return static_cast<std::size_t>(target.device * cores + target.core);
}

SemaphoreState* sibling(const SemaphoreState& semaphore, const CoreState& core, std::size_t agent) {
  if (semaphore.siblings == nullptr) {
    throw TileError(ErrorKind::usage,
                    located(core, "'" + semaphore.name + "'") +
                        " is from run_scoped, which others do not have; declare it as scratch");
  }
  return (*semaphore.siblings)[agent];
}

}  // namespace

void CoreState::record(ScheduleEvent::Kind kind, const Transfer* transfer,
                       const SemaphoreState* semaphore) {
  if (!machine->options.recorder) return;
  ScheduleEvent event{.kind = kind, .device = device, .core = core};
  if (!grids.empty()) event.grid_point = grids.back().point;
  const auto start_of = [](const Region& region) {
    Shape start;
    for (const Slice& part : region.slices) start.push_back(part.start);
    return start;
  };
  if (transfer != nullptr) {
    event.from = transfer->from.buffer->name;
    event.to = transfer->to.buffer->name;
    event.from_start = start_of(transfer->from);
    event.to_start = start_of(transfer->to);
  }
  if (semaphore != nullptr) event.semaphore = semaphore->name;
  machine->options.recorder(event);
}

void begin(const std::shared_ptr<Transfer>& transfer) {
  CoreState& core = current_core("a copy");
  if (transfer->started) {
    throw TileError(ErrorKind::usage,
                    located(core, title(*transfer)) + " has been started before; make another");
  }
  transfer->started = true;
  transfer->place = core.place;
  // The issuer's clock as it was before: what it does from here on is not ordered with the copy.
  transfer->clock = core.clock;
  transfer->stamp = core.launch->slots.start_copy(core.clock);
  const auto slot = static_cast<std::size_t>(transfer->stamp.slot);
  if (transfer->clock.size() <= slot) transfer->clock.resize(slot + 1, 0);
  transfer->clock[slot] = transfer->stamp.tick;
  core.tick();
  for (SemaphoreState* semaphore : {transfer->send, transfer->receive}) {
    if (semaphore != nullptr) semaphore->in_flight.push_back(transfer);
  }
  ++transfer->from.buffer->in_flight;
  ++transfer->to.buffer->in_flight;
  auto& report = core.machine->report;
  ++report.copies;
  report.bytes_copied += transfer->counted;
  if (transfer->send != nullptr) report.bytes_remote += transfer->counted;
  auto& source = report.buffers[transfer->from.buffer->report];
  auto& target = report.buffers[transfer->to.buffer->report];
  source.bytes_read += transfer->counted;
  target.bytes_written += transfer->counted;
  ++source.copies;
  ++target.copies;
  core.record(ScheduleEvent::Kind::copy, transfer.get(), transfer->receive);
  core.note(CopyEvent{.from_buffer = transfer->from.buffer->report,
                      .to_buffer = transfer->to.buffer->report,
                      .from_space = transfer->from.buffer->space,
                      .to_space = transfer->to.buffer->space,
                      .to_device = transfer->to.buffer->device,
                      .bytes = transfer->counted,
                      .amount = transfer->bytes,
                      .send = transfer->send != nullptr ? transfer->send->id : -1,
                      .receive = transfer->receive->id,
                      .priority = transfer->options.priority});
  if (core.machine->options.dma == DmaMode::eager) move_data(transfer);
  core.machine->scheduler->yield();
}

std::shared_ptr<Transfer> make_transfer(const Region& from, const Region& to,
                                        const CopyOptions& options) {
  auto transfer = std::make_shared<Transfer>();
  transfer->from = from;
  transfer->to = to;
  transfer->options = options;
  transfer->bytes = static_cast<std::int64_t>(from.buffer->element_bytes());
  for (const auto extent : extents_of(from)) transfer->bytes *= extent;
  transfer->counted = transfer->bytes;
  return transfer;
}

void move_data(const std::shared_ptr<Transfer>& transfer) {
  if (transfer->moved) return;
  transfer->moved = true;
  record_access(*transfer->from.buffer, transfer->from.slices, false, true, transfer->stamp,
                transfer->clock, transfer->place);
  record_access(*transfer->to.buffer, transfer->to.slices, true, true, transfer->stamp,
                transfer->clock, transfer->place);
  move_elements(*transfer);
  for (SemaphoreState* semaphore : {transfer->send, transfer->receive}) {
    if (semaphore == nullptr) continue;
    std::erase(semaphore->in_flight, transfer);
    // The sender of a remote copy waits for its own side, the receiver for the other.
    const bool remote = transfer->send != nullptr;
    const bool arrives = semaphore == transfer->receive;
    give(*semaphore,
         {transfer->bytes, transfer->clock, remote && arrives ? nullptr : transfer->from.buffer,
          arrives ? transfer->to.buffer : nullptr});
  }
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

Copy make_copy(const Region& from, const Region& to, const DmaSemaphore& semaphore,
               const CopyOptions& options) {
  CoreState& core = current_core("a copy");
  auto transfer = make_transfer(from, to, options);
  require_kind(core, semaphore, SemaphoreKind::dma, [&] { return title(*transfer); });
  check_copy(core, *transfer);
  transfer->receive = semaphore.state();
  return Copy(std::move(transfer));
}

Copy make_remote_copy(const Region& from, const Region& to, const DmaSemaphore& send,
                      const DmaSemaphore& receive, const Target& target,
                      const CopyOptions& options) {
  CoreState& core = current_core("a copy");
  auto transfer = make_transfer(from, to, options);
  require_kind(core, send, SemaphoreKind::dma, [&] { return title(*transfer); });
  require_kind(core, receive, SemaphoreKind::dma, [&] { return title(*transfer); });
  check_copy(core, *transfer);
  transfer->send = send.state();
  const std::size_t agent = agent_of(core, target);
  transfer->receive = sibling(*receive.state(), core, agent);
  transfer->own_receive = receive.state();
  if (to.buffer->siblings == nullptr) {
    throw TileError(ErrorKind::usage,
                    located(core, "'" + to.buffer->name + "'") +
                        " exists on this device alone; pass an array per device, or scratch");
  }
  transfer->to.buffer = (*to.buffer->siblings)[agent];
  return Copy(std::move(transfer));
}

void sync_copy(const Region& from, const Region& to) {
  Scope scope;
  const DmaSemaphore semaphore(scope.semaphore(SemaphoreKind::dma, "of sync_copy"));
  Copy copy = make_copy(from, to, semaphore, {});
  copy.start();
  copy.wait();
}

}  // namespace detail

void Copy::start() { detail::begin(transfer_); }

void Copy::wait_send() {
  detail::take(*(transfer_->send != nullptr ? transfer_->send : transfer_->receive),
               transfer_->bytes);
}

void Copy::wait_recv() {
  detail::take(*(transfer_->own_receive != nullptr ? transfer_->own_receive : transfer_->receive),
               transfer_->bytes);
}

void Copy::wait() {
  if (transfer_->send != nullptr) wait_send();
  wait_recv();
}

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

std::int64_t semaphore_read(const Semaphore& semaphore) { return semaphore.state()->count; }

}  // namespace tessera::tile
