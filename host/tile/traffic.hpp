// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "host/tile/time.hpp"

// What the replay of the time model is made of besides cores: what happens next, and copies on
// their way.
namespace tessera::tile {

/// What happens next, in this order where it happens at the same time: who waits for a copy sees
/// all that came by then, and a core that goes on sees a channel that has become free.
struct Happening {
  enum class Kind : std::uint8_t { arrival, channel_free, core_goes_on };
  double time = 0;
  Kind kind = Kind::arrival;
  int index = 0;            ///< semaphore, channel or core
  std::int64_t amount = 0;  ///< of an arrival
  int copy = -1;            ///< of an arrival: its number; -1: a signal
  std::uint64_t order = 0;  ///< arrivals: as they were foreseen; else the index

  bool operator>(const Happening& other) const {
    if (time != other.time) return time > other.time;
    if (kind != other.kind) return kind > other.kind;
    return order > other.order;
  }
};

class Agenda {
 public:
  void add(Happening happening) {
    happening.order = happening.kind == Happening::Kind::arrival
                          ? ++foreseen_
                          : static_cast<std::uint64_t>(happening.index);
    ahead_.push(happening);
  }
  bool empty() const { return ahead_.empty(); }
  Happening next() {
    const Happening first = ahead_.top();
    ahead_.pop();
    return first;
  }
  /// Whether nothing comes before core `index` goes on at `time`.
  bool core_is_next(double time, int index) const {
    return ahead_.empty() || ahead_.top() > Happening{.time = time,
                                                      .kind = Happening::Kind::core_goes_on,
                                                      .order = static_cast<std::uint64_t>(index)};
  }

 private:
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> ahead_;
  std::uint64_t foreseen_ = 0;
};

/// Copies through the channels of HBM, of cores' own memories and of links. A channel serves one
/// copy at a time, priority 1 first, else in the order in which they were started.
class Traffic {
 public:
  Traffic(const Rates& rates, std::span<const CoreLog> logs, int devices, std::size_t copies,
          Agenda& agenda, std::vector<Span>* spans);
  /// By core `index` of the kernel.
  void start(const CopyEvent& event, std::size_t index, const CoreLog& core, double now);
  /// A channel has finished what it served.
  void finish(std::size_t channel, double now);
  const CopyEvent& copy(int number) const {
    return *flights_[static_cast<std::size_t>(number)].event;
  }
  void add_busy(UnitSeconds& busy) const;
  double total_seconds() const { return total_; }

 private:
  struct Flight {
    const CopyEvent* event = nullptr;
    const CoreLog* core = nullptr;
    int next = -1;  ///< behind it in a queue
    bool on_link = false;
  };
  struct Queue {
    int first = -1;
    int last = -1;
  };
  struct Channel {
    Queue queues[2]{};  ///< by priority
    int serving = -1;
    double began = 0;
    double busy = 0;
  };

  Flight& flight(int number) { return flights_[static_cast<std::size_t>(number)]; }
  void enter(std::size_t channel, int number, double now);
  void enter_link(int number, double now);
  void serve(std::size_t channel, int number, double now);
  double service_seconds(const Flight& copy) const;
  void note(const Flight& copy, double start, double end) const;

  const Rates& rates_;
  std::size_t cores_;
  std::vector<std::size_t> hbm_of_{};  ///< by core: the channel of its HBM
  int devices_;
  Agenda& agenda_;
  std::vector<Span>* spans_;
  std::vector<Flight> flights_{};
  std::vector<Channel> channels_{};  ///< of HBM, then of cores' memories, then of links
  double total_ = 0;
};

}  // namespace tessera::tile
