// SPDX-License-Identifier: Apache-2.0
#include "tessera/tile/copies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "host/tile/buffer.hpp"
#include "host/tile/core.hpp"
#include "host/tile/launch.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/semaphore.hpp"
#include "host/tile/text.hpp"
#include "host/tile/time.hpp"
#include "host/tile/transfer.hpp"

namespace tessera::tile {
namespace detail {
namespace {

/// Of any copy: types, priority, and that the target can be written.
void check_sides(const CoreState& core, const Transfer& transfer) {
  const Buffer& from = *transfer.from.buffer;
  const Buffer& to = *transfer.to.buffer;
  const auto where = [&] { return located(core, title(transfer)); };
  if (from.type != to.type) {
    throw TileError(ErrorKind::usage, fmt::format("{}: {} cannot be copied into {}", where(),
                                                  to_string(from.type), to_string(to.type)));
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
}

void check_copy(const CoreState& core, const Transfer& transfer) {
  const auto where = [&] { return located(core, title(transfer)); };
  check_sides(core, transfer);
  const Shape from_extents = extents_of(transfer.from);
  const Shape to_extents = extents_of(transfer.to);
  if (from_extents != to_extents) {
    throw TileError(ErrorKind::usage,
                    fmt::format("{}: {} elements cannot be copied into {}; slice one of them",
                                where(), to_text(from_extents), to_text(to_extents)));
  }
  if (!core.machine->options.check_layout || core.kind != CoreKind::tensor_core) return;
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

/// JAX's documents (pallas/tpu/distributed.md): a device sends to any other of its pod, but on v5e
/// only to offsets that are powers of two.
void check_route(const CoreState& core, const Transfer& transfer, int target) {
  const auto& options = core.machine->options;
  const auto distance = static_cast<unsigned>(hops(core.device, target, options.devices));
  if (!options.chip.power_of_two_routes || distance == 0 || std::has_single_bit(distance)) return;
  throw TileError(ErrorKind::usage,
                  fmt::format("{}: device {} is {} devices away from device {} in a ring of {}, "
                              "where {} routes copies to offsets that are powers of two only; send "
                              "through a device between them",
                              located(core, title(transfer)), target, distance, core.device,
                              options.devices, options.chip.name));
}

}  // namespace

void begin(const std::shared_ptr<Transfer>& transfer) {
  CoreState& core = current_core("a copy");
  if (transfer == nullptr) {
    throw TileError(ErrorKind::usage, located(core, "a Copy that is none, made without a value,"));
  }
  // What was made in another kernel ends with it.
  own_semaphore(core, transfer->own(), [&] { return title(*transfer); });
  if (transfer->started) {
    throw TileError(ErrorKind::usage,
                    located(core, title(*transfer)) + " has been started before; make another");
  }
  transfer->started = true;
  transfer->place = core.place;
  // The issuer's clock as it was before: what it does from here on is not ordered with the copy.
  transfer->stamp = core.launch->slots.start_copy(core.clock);
  const auto slot = static_cast<std::size_t>(transfer->stamp.slot);
  transfer->clock.reserve(std::max(slot + 1, core.clock.size()));
  transfer->clock = core.clock;
  if (transfer->clock.size() <= slot) transfer->clock.resize(slot + 1, 0);
  transfer->clock[slot] = transfer->stamp.tick;
  core.tick();
  for (const auto* semaphore : {&transfer->send, &transfer->receive}) {
    if (*semaphore != nullptr) (*semaphore)->in_flight.push_back(transfer);
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
  core.record(ScheduleEvent::Kind::copy, transfer.get(), transfer->receive.get());
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

std::shared_ptr<Transfer> make_transfer(Region from, Region to, const CopyOptions& options) {
  auto transfer = std::make_shared<Transfer>();
  transfer->options = options;
  transfer->bytes = static_cast<std::int64_t>(from.buffer->element_bytes());
  for (const Slice& slice : from.slices) transfer->bytes *= slice.size;
  transfer->from = std::move(from);
  transfer->to = std::move(to);
  transfer->counted = transfer->bytes;
  return transfer;
}

void move_data(const std::shared_ptr<Transfer>& transfer) {
  if (transfer->moved) return;
  transfer->moved = true;
  const auto semaphores = {transfer->send.get(), transfer->receive.get()};
  for (SemaphoreState* semaphore : semaphores) {
    if (semaphore != nullptr) std::erase(semaphore->in_flight, transfer);
  }
  const auto record = [&](const Region& region, bool writes) {
    record_access(*region.buffer, region.slices, writes, true, transfer->stamp, transfer->clock,
                  transfer->place);
  };
  if (transfer->indices.buffer != nullptr) record(transfer->indices, false);
  for_each_part(*transfer, [&](const Region& from, const Region& to) {
    record(from, false);
    record(to, true);
  });
  note_unknown(*transfer);
  // Handing the turn over takes about as long as moving this much.
  constexpr std::int64_t worth_a_turn = 256 * 1024;
  if (transfer->bytes < worth_a_turn) {
    move_elements(*transfer);
  } else {
    beside([&] { move_elements(*transfer); });
  }
  for (SemaphoreState* const& semaphore : semaphores) {
    if (semaphore == nullptr) continue;
    const bool last = &semaphore == semaphores.end() - 1;
    // The sender of a remote copy waits for its own side, the receiver for the other.
    const bool remote = transfer->send != nullptr;
    const bool arrives = semaphore == transfer->receive.get();
    give(*semaphore, {transfer->bytes,
                      // Nobody asks for the clock of a copy that has moved.
                      last ? std::move(transfer->clock) : transfer->clock,
                      remote && arrives ? nullptr : transfer->from.buffer,
                      arrives ? transfer->to.buffer : nullptr});
  }
}

Copy make_copy(const Region& from, const Region& to, const DmaSemaphore& semaphore,
               const CopyOptions& options) {
  CoreState& core = current_core("a copy");
  core.own(from);
  core.own(to);
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
  core.own(from);
  core.own(to);
  auto transfer = make_transfer(from, to, options);
  require_kind(core, send, SemaphoreKind::dma, [&] { return title(*transfer); });
  require_kind(core, receive, SemaphoreKind::dma, [&] { return title(*transfer); });
  check_copy(core, *transfer);
  transfer->send = send.state();
  const std::size_t agent = agent_of(core, target);
  check_route(core, *transfer, target.device);
  transfer->receive = sibling(*receive.state(), core, agent)->shared_from_this();
  transfer->own_receive = receive.state();
  if (to.buffer->siblings == nullptr) {
    throw TileError(ErrorKind::usage,
                    located(core, "'" + to.buffer->name + "'") +
                        " exists on this device alone; pass an array per device, or scratch");
  }
  transfer->to.buffer = (*to.buffer->siblings)[agent]->shared_from_this();
  return Copy(std::move(transfer));
}

Copy make_indexed_copy(const Region& from, const Region& to, const Region& indices, Indexed side,
                       const DmaSemaphore& semaphore, const CopyOptions& options) {
  CoreState& core = current_core("a gather or scatter");
  for (const Region* region : {&from, &to, &indices}) core.own(*region);
  const Region& rows = side == Indexed::from ? from : to;
  auto transfer = make_transfer(side == Indexed::from ? to : from, to, options);
  transfer->from = from;
  transfer->indices = indices;
  transfer->side = side;
  const auto refuse = [&](ErrorKind kind, const std::string& what) {
    throw TileError(kind, fmt::format("{}: {}", located(core, title(*transfer)), what), {},
                    rows.buffer->name);
  };
  if (core.kind != CoreKind::vector_subcore) {
    refuse(ErrorKind::usage, "only vector subcores of a SparseCore gather and scatter");
  }
  require_kind(core, semaphore, SemaphoreKind::dma, [&] { return title(*transfer); });
  Shape many = extents_of(rows);
  const Shape count = extents_of(indices);
  if (count.size() != 1 || many.empty()) {
    refuse(ErrorKind::usage, fmt::format("indices {} of rows {}: a vector of indices takes rows",
                                         to_text(count), to_text(many)));
  }
  many[0] = count[0];
  if (const Shape few = extents_of(side == Indexed::from ? to : from); few != many) {
    refuse(ErrorKind::usage, fmt::format("{} indices of rows {} give {}, not {}", count[0],
                                         to_text(extents_of(rows)), to_text(many), to_text(few)));
  }
  if (rows.buffer->space != MemorySpace::hbm || indices.buffer->space != MemorySpace::vmem) {
    refuse(ErrorKind::space,
           fmt::format("rows are in HBM and indices in VMEM, not in {} and {}",
                       to_string(rows.buffer->space), to_string(indices.buffer->space)));
  }
  check_sides(core, *transfer);
  // The memory moves whole granules of each row.
  const std::int64_t granule = core.machine->options.chip.sparse_cores->dma_granule_bytes;
  transfer->counted = count[0] * align_to(transfer->bytes / count[0], granule);
  transfer->receive = semaphore.state();
  return Copy(std::move(transfer));
}

namespace {

void start_and_wait(const std::function<Copy(const DmaSemaphore&)>& make) {
  Scope scope;
  Copy copy = make(DmaSemaphore(scope.semaphore(SemaphoreKind::dma, "of a synchronous copy")));
  copy.start();
  copy.wait();
}

}  // namespace

void sync_copy(const Region& from, const Region& to) {
  start_and_wait([&](const DmaSemaphore& semaphore) { return make_copy(from, to, semaphore, {}); });
}

void sync_indexed_copy(const Region& from, const Region& to, const Region& indices, Indexed side,
                       const CopyOptions& options) {
  start_and_wait([&](const DmaSemaphore& semaphore) {
    return make_indexed_copy(from, to, indices, side, semaphore, options);
  });
}

}  // namespace detail

namespace {

/// Until the bytes of a copy have come to a semaphore of the running core.
void await(const std::shared_ptr<detail::Transfer>& transfer, bool sent) {
  const detail::CoreState& core = detail::current_core("a wait");
  if (transfer == nullptr) {
    throw TileError(ErrorKind::usage,
                    detail::located(core, "a Copy that is none, made without a value,"));
  }
  const auto what = [&] { return "the wait for " + detail::title(*transfer); };
  detail::take(detail::own_semaphore(core, sent ? transfer->own() : transfer->own_receiver(), what),
               transfer->bytes);
}

}  // namespace

void Copy::start() { detail::begin(transfer_); }
void Copy::wait_send() { await(transfer_, true); }
void Copy::wait_recv() { await(transfer_, false); }

void Copy::wait() {
  if (transfer_ != nullptr && transfer_->send != nullptr) wait_send();
  wait_recv();
}

}  // namespace tessera::tile
