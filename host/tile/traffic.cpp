// SPDX-License-Identifier: Apache-2.0
#include "host/tile/traffic.hpp"

#include <algorithm>
#include <cstdlib>

namespace tessera::tile {

int hops(int from, int to, int devices) {
  const int apart = std::abs(to - from);
  return std::min(apart, devices - apart);
}

Traffic::Traffic(const Rates& rates, std::span<const CoreLog> logs, int devices, std::size_t copies,
                 Agenda& agenda, std::vector<Span>* spans)
    : rates_(rates), cores_(logs.size()), devices_(devices), agenda_(agenda), spans_(spans) {
  flights_.reserve(copies);
  channels_.resize(2 * cores_ +
                   static_cast<std::size_t>(devices) * static_cast<std::size_t>(devices));
  for (std::size_t i = 0; i < cores_; ++i) {
    // Of a device's cores, those that share its memory use the channel of the first of them. The
    // subcores of SparseCores always share it: they belong to a TensorCore.
    const bool shares = rates.shared_hbm || !logs[i].tensor_core;
    const auto first = [&](bool tensor_core) {
      return std::find_if(logs.begin(), logs.end(), [&](const CoreLog& log) {
        return log.device == logs[i].device && (log.tensor_core || !tensor_core);
      });
    };
    auto owner = logs.begin() + static_cast<std::ptrdiff_t>(i);
    if (shares) owner = first(true) != logs.end() ? first(true) : first(false);
    hbm_of_.push_back(static_cast<std::size_t>(owner - logs.begin()));
  }
}

void Traffic::start(const CopyEvent& event, std::size_t index, const CoreLog& core, double now) {
  const int number = static_cast<int>(flights_.size());
  flights_.push_back({&event, &core});
  const bool reads = event.from_space == MemorySpace::hbm;
  const bool stays = event.to_device == core.device;
  if (reads || (stays && event.to_space == MemorySpace::hbm)) {
    enter(hbm_of_[index], number, now);
  } else if (stays) {
    enter(cores_ + index, number, now);
  } else {
    enter_link(number, now);
  }
}

void Traffic::enter_link(int number, double now) {
  Flight& copy = flight(number);
  copy.on_link = true;
  copy.next = -1;
  enter(2 * cores_ + static_cast<std::size_t>(copy.core->device * devices_ + copy.event->to_device),
        number, now);
}

void Traffic::enter(std::size_t index, int number, double now) {
  Channel& channel = channels_[index];
  if (channel.serving < 0) {
    serve(index, number, now);
    return;
  }
  Queue& queue = channel.queues[flight(number).event->priority > 0 ? 1 : 0];
  (queue.first < 0 ? queue.first : flight(queue.last).next) = number;
  queue.last = number;
}

void Traffic::serve(std::size_t index, int number, double now) {
  Channel& channel = channels_[index];
  const double seconds = service_seconds(flight(number));
  channel.serving = number;
  channel.began = now;
  channel.busy += seconds;
  total_ += seconds;
  agenda_.add({.time = now + seconds,
               .kind = Happening::Kind::channel_free,
               .index = static_cast<int>(index)});
}

double Traffic::service_seconds(const Flight& copy) const {
  const CopyEvent& event = *copy.event;
  const auto bytes = static_cast<double>(event.bytes);
  const int from = copy.core->device;
  if (copy.on_link) return bytes / rates_.ici;
  const bool reads = event.from_space == MemorySpace::hbm;
  const bool writes = event.to_space == MemorySpace::hbm && event.to_device == from;
  if (!reads && !writes) return bytes / rates_.vmem;
  return (reads && writes ? 2 * bytes : bytes) / rates_.hbm;
}

void Traffic::finish(std::size_t index, double now) {
  Channel& channel = channels_[index];
  const int number = channel.serving;
  channel.serving = -1;
  note(flight(number), channel.began, now);
  for (Queue* queue : {&channel.queues[1], &channel.queues[0]}) {
    if (queue->first < 0) continue;
    const int next = queue->first;
    queue->first = flight(next).next;
    serve(index, next, now);
    break;
  }
  const Flight& copy = flight(number);
  const CopyEvent& event = *copy.event;
  const int from = copy.core->device;
  if (event.to_device != from && !copy.on_link) {
    enter_link(number, now);
    return;
  }
  const double far = hops(from, event.to_device, devices_) * rates_.ici_latency;
  total_ += rates_.dma_latency + far;
  const auto tell = [&](int semaphore, double when) {
    if (semaphore >= 0) {
      agenda_.add({.time = when, .index = semaphore, .amount = event.amount, .copy = number});
    }
  };
  tell(event.send, now + rates_.dma_latency);
  tell(event.receive, now + rates_.dma_latency + far);
}

void Traffic::note(const Flight& copy, double start, double end) const {
  if (spans_ == nullptr || end <= start) return;
  const CopyEvent& event = *copy.event;
  Span& span = spans_->emplace_back();
  span.track = copy.on_link                           ? Span::Track::ici
               : event.from_space == MemorySpace::hbm ? Span::Track::copies_in
               : event.to_space == MemorySpace::hbm   ? Span::Track::copies_out
                                                      : Span::Track::copies_on_chip;
  span.device = copy.core->device;
  span.core = copy.on_link ? event.to_device : copy.core->core;
  span.start = start;
  span.end = end;
  span.from_buffer = event.from_buffer;
  span.to_buffer = event.to_buffer;
  span.bytes = event.bytes;
}

void Traffic::add_busy(UnitSeconds& busy) const {
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    auto& of_kind = i >= 2 * cores_ ? busy.ici : i >= cores_ ? busy.vmem : busy.hbm;
    of_kind = std::max(of_kind, channels_[i].busy);
  }
}

}  // namespace tessera::tile
