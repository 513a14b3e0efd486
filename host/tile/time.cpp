// SPDX-License-Identifier: Apache-2.0
#include "host/tile/time.hpp"

#include <algorithm>
#include <utility>

#include "host/tile/traffic.hpp"
#include "tessera/tile/error.hpp"

namespace tessera::tile {
namespace {

struct Core {
  const CoreLog* log = nullptr;
  std::size_t at = 0;  ///< its next event
  double now = 0;
  bool finished = false;
  bool at_barrier = false;
  int group = -1;      ///< of the barrier
  int semaphore = -1;  ///< waits for it; -1: does not
  std::int64_t amount = 0;
  double began = 0;  ///< the wait
  double step_began = 0;
  std::shared_ptr<const Place> step{};
  UnitSeconds busy{};
  double waiting = 0;
  Waits waits{};
};

/// What a look over the logs tells.
struct Extent {
  int devices = 1;
  int semaphores = 0;
  std::size_t copies = 0;

  explicit Extent(std::span<const CoreLog> logs) {
    for (const CoreLog& log : logs) {
      devices = std::max(devices, log.device + 1);
      for (const Event& event : log.events) {
        if (const auto* copy = std::get_if<CopyEvent>(&event)) {
          ++copies;
          devices = std::max(devices, copy->to_device + 1);
          semaphores = std::max({semaphores, copy->send + 1, copy->receive + 1});
        } else if (const auto* signal = std::get_if<SignalEvent>(&event)) {
          semaphores = std::max(semaphores, signal->semaphore + 1);
        } else if (const auto* take = std::get_if<TakeEvent>(&event)) {
          semaphores = std::max(semaphores, take->semaphore + 1);
        }
      }
    }
  }
};

class Replayer {
 public:
  Replayer(const Rates& rates, std::span<const CoreLog> logs, std::size_t buffers,
           std::vector<Span>* spans)
      : Replayer(rates, logs, Extent(logs), buffers, spans) {}

  Replay run() {
    for (std::size_t i = 0; i < cores_.size(); ++i) go_on_later(i);
    while (!agenda_.empty()) {
      const Happening next = agenda_.next();
      seconds_ = std::max(seconds_, next.time);
      switch (next.kind) {
        case Happening::Kind::arrival:
          arrive(next);
          break;
        case Happening::Kind::channel_free:
          traffic_.finish(static_cast<std::size_t>(next.index), next.time);
          break;
        case Happening::Kind::core_goes_on:
          go_on(static_cast<std::size_t>(next.index));
      }
    }
    return result();
  }

 private:
  Replayer(const Rates& rates, std::span<const CoreLog> logs, const Extent& extent,
           std::size_t buffers, std::vector<Span>* spans)
      : rates_(rates),
        spans_(spans),
        devices_(extent.devices),
        traffic_(rates, logs, extent.devices, extent.copies, agenda_, spans),
        counts_(static_cast<std::size_t>(extent.semaphores), 0),
        device_of_(static_cast<std::size_t>(extent.semaphores), -1) {
    for (const CoreLog& log : logs) {
      Core core;
      core.log = &log;
      core.now = core.busy.core = rates.launch_overhead;
      core.waits.by_buffer.assign(buffers, 0.0);
      cores_.push_back(std::move(core));
      total_ += rates.launch_overhead;
      for (const Event& event : log.events) {
        const auto* take = std::get_if<TakeEvent>(&event);
        if (take != nullptr) device_of_[static_cast<std::size_t>(take->semaphore)] = log.device;
      }
    }
  }

  void go_on_later(std::size_t i) {
    agenda_.add({.time = cores_[i].now,
                 .kind = Happening::Kind::core_goes_on,
                 .index = static_cast<int>(i)});
  }

  /// Takes a core through its log until it waits, or something else comes before the next event
  /// that others notice.
  void go_on(std::size_t i) {
    Core& core = cores_[i];
    const auto& events = core.log->events;
    for (; core.at < events.size(); ++core.at) {
      const Event& event = events[core.at];
      if (const auto* work = std::get_if<WorkEvent>(&event)) {
        do_work(core, work->work);
        continue;
      }
      if (const auto* step = std::get_if<StepEvent>(&event)) {
        begin_step(core, *step);
        continue;
      }
      if (!agenda_.core_is_next(core.now, static_cast<int>(i))) {
        go_on_later(i);
        return;
      }
      if (const auto* copy = std::get_if<CopyEvent>(&event)) {
        traffic_.start(*copy, i, *core.log, core.now);
      } else if (const auto* signal = std::get_if<SignalEvent>(&event)) {
        send(*signal, core);
      } else if (const auto* take = std::get_if<TakeEvent>(&event)) {
        auto& count = counts_[static_cast<std::size_t>(take->semaphore)];
        if (count < take->amount) {
          core.semaphore = take->semaphore;
          core.amount = take->amount;
          core.began = core.now;
          return;
        }
        count -= take->amount;
      } else {
        come_to_barrier(core, std::get<BarrierEvent>(event));
        return;
      }
    }
    end_step(core);
    core.finished = true;
    seconds_ = std::max(seconds_, core.now);
  }

  void do_work(Core& core, const Work& work) {
    UnitSeconds units;
    units.mxu = work.mxu_seconds * rates_.mxu;
    const bool whole = core.log->tensor_core;
    units.vpu = work.vpu_ops / (whole ? rates_.vpu : rates_.subcore);
    units.eup = work.eup_ops / (whole ? rates_.eup : rates_.subcore);
    units.xlu = work.xlu_ops / (whole ? rates_.xlu : rates_.subcore);
    const double most = std::max({units.mxu, units.vpu, units.eup, units.xlu});
    const double all = units.mxu + units.vpu + units.eup + units.xlu;
    units.core = rates_.unit_overlap * most + (1 - rates_.unit_overlap) * all;
    core.busy.mxu += units.mxu;
    core.busy.vpu += units.vpu;
    core.busy.eup += units.eup;
    core.busy.xlu += units.xlu;
    if (Span* span = add_span(Span::Track::work, core, core.now, core.now + units.core)) {
      span->units = units;
    }
    pass(core, units.core);
  }

  /// The core is busy.
  void pass(Core& core, double seconds) {
    core.now += seconds;
    core.busy.core += seconds;
    total_ += seconds;
  }

  void begin_step(Core& core, const StepEvent& step) {
    end_step(core);
    core.step = step.place;
    core.step_began = core.now;
    pass(core, rates_.step_overhead);
  }

  void end_step(Core& core) {
    if (core.step == nullptr) return;
    add_span(Span::Track::steps, core, core.step_began, core.now);
    core.step = nullptr;
  }

  void send(const SignalEvent& signal, const Core& core) {
    const int target = device_of_[static_cast<std::size_t>(signal.semaphore)];
    const double far =
        target < 0 ? 0 : hops(core.log->device, target, devices_) * rates_.ici_latency;
    total_ += far;
    agenda_.add({.time = core.now + far, .index = signal.semaphore, .amount = signal.amount});
  }

  void arrive(const Happening& arrival) {
    auto& count = counts_[static_cast<std::size_t>(arrival.index)];
    count += arrival.amount;
    for (std::size_t i = 0; i < cores_.size(); ++i) {
      Core& core = cores_[i];
      if (core.semaphore != arrival.index || count < core.amount) continue;
      count -= core.amount;
      core.semaphore = -1;
      end_wait(core, arrival.time, arrival.copy < 0 ? nullptr : &traffic_.copy(arrival.copy));
      ++core.at;
      go_on_later(i);
    }
  }

  void come_to_barrier(Core& core, const BarrierEvent& barrier) {
    core.at_barrier = true;
    core.group = barrier.group;
    core.began = core.now;
    double last = 0;
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < cores_.size(); ++i) {
      if (!cores_[i].at_barrier || cores_[i].group != barrier.group) continue;
      members.push_back(i);
      last = std::max(last, cores_[i].now);
    }
    const auto all =
        barrier.members > 0 ? static_cast<std::size_t>(barrier.members) : cores_.size();
    if (members.size() < all) return;
    // Everybody hears of the farthest; the subcores of one SparseCore are beside each other.
    const double far = barrier.group < 0 ? (devices_ / 2) * rates_.ici_latency : 0;
    total_ += far;
    for (const std::size_t i : members) {
      end_wait(cores_[i], last + far, nullptr);
      cores_[i].at_barrier = false;
      ++cores_[i].at;
      go_on_later(i);
    }
  }

  /// For a copy, or for a signal or a barrier.
  void end_wait(Core& core, double now, const CopyEvent* copy) {
    const double seconds = now - core.began;
    if (copy == nullptr) {
      (core.at_barrier ? core.waits.barriers : core.waits.signals) += seconds;
    } else {
      // Whoever waits for a block waits for its array.
      const bool from = copy->from_space == MemorySpace::hbm || copy->to_space != MemorySpace::hbm;
      core.waits.by_buffer[from ? copy->from_buffer : copy->to_buffer] += seconds;
    }
    core.waiting += seconds;
    if (Span* span = add_span(Span::Track::waits, core, core.began, now)) {
      span->wait = copy != nullptr   ? Span::Wait::copy
                   : core.at_barrier ? Span::Wait::barrier
                                     : Span::Wait::signal;
      if (copy != nullptr) {
        span->from_buffer = copy->from_buffer;
        span->to_buffer = copy->to_buffer;
        span->bytes = copy->bytes;
      }
    }
    core.now = now;
  }

  Span* add_span(Span::Track track, const Core& core, double start, double end) {
    if (spans_ == nullptr || end <= start) return nullptr;
    Span& span = spans_->emplace_back();
    span.track = track;
    span.device = core.log->device;
    span.core = core.log->core;
    span.start = start;
    span.end = end;
    span.place = core.step;
    return &span;
  }

  Replay result() const {
    Replay replay;
    KernelTime& time = replay.time;
    time.seconds = seconds_;
    const Core* last = nullptr;
    for (const Core& core : cores_) {
      if (!core.finished) {
        throw TileError(ErrorKind::deadlock,
                        "the time model cannot end a kernel that has ended: a fault of the "
                        "library");
      }
      if (last == nullptr || core.now > last->now) last = &core;
      time.cores.push_back({core.log->device, core.log->core, core.now, core.busy.core,
                            core.waiting, core.log->tensor_core});
      time.busy.mxu = std::max(time.busy.mxu, core.busy.mxu);
      time.busy.vpu = std::max(time.busy.vpu, core.busy.vpu);
      time.busy.eup = std::max(time.busy.eup, core.busy.eup);
      time.busy.xlu = std::max(time.busy.xlu, core.busy.xlu);
      time.busy.core = std::max(time.busy.core, core.busy.core);
    }
    if (last != nullptr) replay.waits = last->waits;
    traffic_.add_busy(time.busy);
    time.lower_bound_seconds =
        std::max({time.busy.core, time.busy.hbm, time.busy.vmem, time.busy.ici});
    time.upper_bound_seconds = total_ + traffic_.total_seconds();
    return replay;
  }

  const Rates& rates_;
  std::vector<Span>* spans_;
  int devices_;
  Agenda agenda_{};
  Traffic traffic_;
  std::vector<Core> cores_{};
  std::vector<std::int64_t> counts_;  ///< of semaphores
  std::vector<int> device_of_;        ///< where a semaphore is waited for; -1: nowhere
  double seconds_ = 0;
  double total_ = 0;  ///< what cores do, and signals and barriers on their way, end to end
};

}  // namespace

Replay replay(const Rates& rates, std::span<const CoreLog> logs, std::size_t buffers,
              std::vector<Span>* spans) {
  return Replayer(rates, logs, buffers, spans).run();
}

}  // namespace tessera::tile
