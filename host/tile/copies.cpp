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

std::string title(const Transfer& transfer) {
  return fmt::format("copy '{}' -> '{}'", transfer.from.buffer->name, transfer.to.buffer->name);
}

/// Adds element by element, as wide as the type is.
template <class T>
void add_row(std::byte* to, const std::byte* from, std::int64_t count, std::int64_t to_stride,
             std::int64_t from_stride) {
  auto* out = reinterpret_cast<T*>(to);
  const auto* in = reinterpret_cast<const T*>(from);
  for (std::int64_t i = 0; i < count; ++i) {
    T& value = out[i * to_stride];
    if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
      value = T(static_cast<float>(value) + static_cast<float>(in[i * from_stride]));
    } else {
      value = static_cast<T>(value + in[i * from_stride]);
    }
  }
}

void move_row(const Transfer& transfer, std::byte* to, const std::byte* from, std::int64_t count,
              std::int64_t to_stride, std::int64_t from_stride) {
  const auto bytes = transfer.from.buffer->element_bytes();
  if (transfer.options.add) {
    switch (transfer.from.buffer->type) {
      case ElementType::f32:
        return add_row<float>(to, from, count, to_stride, from_stride);
      case ElementType::bf16:
        return add_row<bf16>(to, from, count, to_stride, from_stride);
      case ElementType::f16:
        return add_row<f16>(to, from, count, to_stride, from_stride);
      case ElementType::i32:
        return add_row<std::int32_t>(to, from, count, to_stride, from_stride);
      case ElementType::u32:
        return add_row<std::uint32_t>(to, from, count, to_stride, from_stride);
      case ElementType::i8:
        return add_row<std::int8_t>(to, from, count, to_stride, from_stride);
      default:
        throw TileError(ErrorKind::usage,
                        fmt::format("{}: add is for f32, bf16, f16, i32, u32 and i8, not {}",
                                    title(transfer), to_string(transfer.from.buffer->type)));
    }
  }
  if (to_stride == 1 && from_stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * bytes);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + static_cast<std::size_t>(i * to_stride) * bytes,
                from + static_cast<std::size_t>(i * from_stride) * bytes, bytes);
  }
}

void move_elements(const Transfer& transfer) {
  const Elements from = elements_of(transfer.from);
  const Elements to = elements_of(transfer.to);
  if (from.data == nullptr || to.data == nullptr) return;
  const auto bytes = static_cast<std::int64_t>(transfer.from.buffer->element_bytes());
  const std::size_t rank = from.extents.size();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < rank; ++i) rows *= from.extents[i];
  const std::int64_t count = rank > 0 ? from.extents.back() : 1;
  const std::int64_t from_stride = rank > 0 ? from.strides.back() : 1;
  const std::int64_t to_stride = rank > 0 ? to.strides.back() : 1;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t rest = row;
    std::int64_t from_at = 0;
    std::int64_t to_at = 0;
    for (std::size_t i = rank; i-- > 1;) {
      const std::int64_t index = rest % from.extents[i - 1];
      rest /= from.extents[i - 1];
      from_at += index * from.strides[i - 1];
      to_at += index * to.strides[i - 1];
    }
    move_row(transfer, static_cast<std::byte*>(to.data) + to_at * bytes,
             static_cast<const std::byte*>(from.data) + from_at * bytes, count, to_stride,
             from_stride);
  }
}

void check_copy(const CoreState& core, const Transfer& transfer) {
  const Buffer& from = *transfer.from.buffer;
  const Buffer& to = *transfer.to.buffer;
  const std::string where = located(core, title(transfer));
  if (from.type != to.type) {
    throw TileError(ErrorKind::usage, fmt::format("{}: {} cannot be copied into {}", where,
                                                  to_string(from.type), to_string(to.type)));
  }
  const Shape from_extents = extents_of(transfer.from);
  const Shape to_extents = extents_of(transfer.to);
  if (from_extents != to_extents) {
    throw TileError(ErrorKind::usage,
                    fmt::format("{}: {} elements cannot be copied into {}; slice one of them",
                                where, to_text(from_extents), to_text(to_extents)));
  }
  if (transfer.options.priority != 0 && transfer.options.priority != 1) {
    throw TileError(ErrorKind::usage, fmt::format("{}: priority {} is neither 0 nor 1", where,
                                                  transfer.options.priority));
  }
  if (!to.writable) {
    throw TileError(ErrorKind::usage,
                    fmt::format("{}: '{}' is a constant view of the caller's memory; give the "
                                "machine a MutableView",
                                where, to.name));
  }
  if (!core.machine->options.check_layout) return;
  for (const Region* side : {&transfer.from, &transfer.to}) {
    const Buffer& buffer = *side->buffer;
    // Scalars lie in SMEM word by word, without tiles.
    if (buffer.space == MemorySpace::smem) continue;
    auto violations = check_dma_slice(core.machine->options.chip, buffer.name, buffer.shape,
                                      buffer.type, side->slices);
    for (auto& violation : violations) violation.message += " (" + where + ")";
    require(violations);
  }
}

void require_kind(const CoreState& core, const Semaphore& semaphore, SemaphoreKind kind,
                  const char* what) {
  if (semaphore.state() != nullptr && semaphore.state()->kind == kind) return;
  throw TileError(ErrorKind::usage,
                  fmt::format("{}: {} takes a {} semaphore", core.place->text(), what,
                              kind == SemaphoreKind::dma ? "DMA" : "regular"));
}

SemaphoreState* sibling(const SemaphoreState& semaphore, const CoreState& core,
                        const Target& target) {
  const int cores = core.launch->cores;
  const int devices = core.machine->options.devices;
  if (target.device < 0 || target.device >= devices || target.core < 0 || target.core >= cores) {
    throw TileError(ErrorKind::bounds,
                    fmt::format("{}: target device {} core {} is none of {} devices with {} cores",
                                core.place->text(), target.device, target.core, devices, cores));
  }
  if (semaphore.siblings == nullptr) {
    throw TileError(ErrorKind::usage,
                    located(core, "'" + semaphore.name + "'") +
                        " is from run_scoped, which others do not have; declare it as scratch");
  }
  const auto agent = static_cast<std::size_t>(target.device * cores + target.core);
  return (*semaphore.siblings)[agent];
}

}  // namespace

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
          return fmt::format("{} of {}semaphore '{}' of core {} in kernel '{}', which holds {}{}",
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
  require_kind(core, semaphore, SemaphoreKind::dma, title(*transfer).c_str());
  check_copy(core, *transfer);
  transfer->receive = semaphore.state();
  return Copy(std::move(transfer));
}

Copy make_remote_copy(const Region& from, const Region& to, const DmaSemaphore& send,
                      const DmaSemaphore& receive, const Target& target,
                      const CopyOptions& options) {
  CoreState& core = current_core("a copy");
  auto transfer = make_transfer(from, to, options);
  require_kind(core, send, SemaphoreKind::dma, title(*transfer).c_str());
  require_kind(core, receive, SemaphoreKind::dma, title(*transfer).c_str());
  check_copy(core, *transfer);
  transfer->send = send.state();
  transfer->receive = sibling(*receive.state(), core, target);
  transfer->own_receive = receive.state();
  if (to.buffer->siblings == nullptr) {
    throw TileError(ErrorKind::usage,
                    located(core, "'" + to.buffer->name + "'") +
                        " exists on this device alone; pass an array per device, or scratch");
  }
  const auto agent = static_cast<std::size_t>(target.device * core.launch->cores + target.core);
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
  detail::require_kind(core, semaphore, detail::SemaphoreKind::regular, "semaphore_signal");
  auto* state = target ? detail::sibling(*semaphore.state(), core, *target) : semaphore.state();
  detail::give(*state, {.amount = amount, .clock = core.clock});
  core.tick();
  core.note(SignalEvent{state->id, amount});
  core.machine->scheduler->yield();
}

void semaphore_wait(const Semaphore& semaphore, std::int64_t amount) {
  detail::require_kind(detail::current_core("semaphore_wait"), semaphore,
                       detail::SemaphoreKind::regular, "semaphore_wait");
  detail::take(*semaphore.state(), amount);
}

std::int64_t semaphore_read(const Semaphore& semaphore) { return semaphore.state()->count; }

}  // namespace tessera::tile
