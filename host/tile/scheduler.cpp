// SPDX-License-Identifier: Apache-2.0
#include "host/tile/scheduler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "tessera/tile/error.hpp"

namespace tessera::tile {
namespace {

/// Unwinds an agent whose run has ended elsewhere; never leaves this file.
struct Ended {};

TileError deadlock_of_one(const Scheduler::Agent& agent, const std::string& waits_for) {
  return TileError(ErrorKind::deadlock, fmt::format("deadlock: nobody can go on; {} waits for {}.",
                                                    agent.name, waits_for));
}

}  // namespace

struct Scheduler::Impl {
  struct State {
    const Agent* agent = nullptr;
    bool finished = false;
    bool away = false;
    /// What it waits for; empty while it could go on.
    const std::function<bool()>* ready = nullptr;
    const std::function<std::string()>* waits_for = nullptr;
    bool polls = false;
    std::uint64_t polled_at = 0;     ///< as many things had happened
    std::int64_t polls_in_vain = 0;  ///< since then
  };

  std::uint64_t seed = 0;
  std::mt19937_64 random;
  std::vector<State> states;
  int running = 0;
  std::uint64_t happened = 1;  ///< since the run began
  std::exception_ptr failure;

  // Agents hand the turn to each other; nothing else is shared while they run.
  std::mutex mutex;
  std::condition_variable turned;

  bool can_run(std::size_t i) const {
    const State& state = states[i];
    return !state.finished && !state.away && (state.ready == nullptr || (*state.ready)());
  }

  bool polls_in_vain(const State& state) const {
    return state.polls && state.polled_at == happened;
  }

  /// The next to run, or -1: nobody can. The running one comes last unless a seed chooses. Who
  /// polls while nothing happens goes on when nobody else can, until it has asked often enough.
  int choose() {
    std::vector<int> candidates;
    int vain = -1;
    bool away = false;
    const auto count = states.size();
    const auto from = static_cast<std::size_t>(std::max(running, 0));
    for (std::size_t step = 1; step <= count; ++step) {
      const auto i = (from + step) % count;
      away = away || states[i].away;
      if (!can_run(i)) continue;
      if (!polls_in_vain(states[i])) {
        candidates.push_back(static_cast<int>(i));
      } else if (states[i].polls_in_vain < max_polls) {
        vain = static_cast<int>(i);  // the running one, if it may: a turn takes longer than to ask
      }
    }
    if (candidates.empty()) return away ? -1 : vain;
    return seed == 0 ? candidates.front() : candidates[random() % candidates.size()];
  }

  /// Whether nobody waits in vain: all have finished, or somebody is away and will come back.
  bool may_be_idle() const {
    bool all_finished = true;
    for (const State& state : states) {
      if (state.away) return true;
      all_finished = all_finished && state.finished;
    }
    return all_finished;
  }

  void fail_with_deadlock() {
    std::string text = "deadlock: nobody can go on;";
    for (const State& state : states) {
      if (state.finished) continue;
      text += fmt::format(" {} waits for {};", state.agent->name,
                          state.waits_for != nullptr ? (*state.waits_for)() : "its turn");
    }
    text.back() = '.';
    failure = std::make_exception_ptr(TileError(ErrorKind::deadlock, text));
  }

  /// Gives the turn away; the caller has stopped running or waits. Under `mutex`.
  void pass_on() {
    const int next = failure == nullptr ? choose() : -1;
    if (next >= 0 && next == running) return;
    running = next;
    if (next < 0 && failure == nullptr && !may_be_idle()) fail_with_deadlock();
    turned.notify_all();
  }

  void await_turn(std::unique_lock<std::mutex>& lock, int self) {
    turned.wait(lock, [&] { return running == self || failure != nullptr; });
    if (failure != nullptr) throw Ended{};
  }

  void take_part(int self) {
    State& state = states[static_cast<std::size_t>(self)];
    std::exception_ptr thrown;
    try {
      {
        std::unique_lock lock(mutex);
        await_turn(lock, self);
      }
      state.agent->body();
    } catch (const Ended&) {
    } catch (...) {
      thrown = std::current_exception();
    }
    std::unique_lock lock(mutex);
    state.finished = true;
    if (thrown != nullptr && failure == nullptr) failure = thrown;
    state.away = false;  // told to end while it was
    if (failure == nullptr) ++happened;
    pass_on();
  }
};

Scheduler::Scheduler(std::uint64_t seed) : impl_(std::make_unique<Impl>()) {
  impl_->seed = seed;
  impl_->random.seed(seed);
}

Scheduler::~Scheduler() = default;

void Scheduler::run(const std::vector<Agent>& agents) {
  Impl& impl = *impl_;
  impl.states.assign(agents.size(), {});
  for (std::size_t i = 0; i < agents.size(); ++i) impl.states[i].agent = &agents[i];
  impl.running = 0;
  impl.happened = 1;
  impl.failure = nullptr;
  if (agents.size() == 1) {
    agents.front().body();
    return;
  }
  if (impl.seed != 0 && !agents.empty()) {
    impl.running = static_cast<int>(impl.random() % agents.size());
  }
  std::vector<std::thread> threads;
  threads.reserve(agents.size());
  for (std::size_t i = 0; i < agents.size(); ++i) {
    threads.emplace_back([&impl, i] { impl.take_part(static_cast<int>(i)); });
  }
  for (auto& thread : threads) thread.join();
  impl.running = 0;
  impl.states.clear();
  if (impl.failure != nullptr) std::rethrow_exception(std::exchange(impl.failure, nullptr));
}

void Scheduler::wait_until(const std::function<bool()>& ready,
                           const std::function<std::string()>& waits_for) {
  if (ready()) return;
  Impl& impl = *impl_;
  if (impl.states.size() <= 1) {
    throw deadlock_of_one(*impl.states.front().agent, waits_for());
  }
  const int self = impl.running;
  auto& state = impl.states[static_cast<std::size_t>(self)];
  std::unique_lock lock(impl.mutex);
  state.ready = &ready;
  state.waits_for = &waits_for;
  impl.pass_on();
  impl.await_turn(lock, self);
  state.ready = nullptr;
  state.waits_for = nullptr;
}

void Scheduler::yield() {
  Impl& impl = *impl_;
  if (impl.seed == 0 || impl.states.size() <= 1) return;
  const int self = impl.running;
  std::unique_lock lock(impl.mutex);
  impl.pass_on();
  impl.await_turn(lock, self);
}

bool Scheduler::poll(const std::function<std::string()>& polls_for) {
  Impl& impl = *impl_;
  const int self = impl.running;
  auto& state = impl.states[static_cast<std::size_t>(self)];
  const bool again = state.polled_at == impl.happened;
  state.polled_at = impl.happened;
  state.polls_in_vain = again ? state.polls_in_vain + 1 : 0;
  if (impl.states.size() <= 1) {
    if (state.polls_in_vain >= max_polls) throw deadlock_of_one(*state.agent, polls_for());
    return again;
  }
  std::unique_lock lock(impl.mutex);
  state.polls = true;
  state.waits_for = &polls_for;
  impl.pass_on();
  impl.await_turn(lock, self);
  state.polls = false;
  state.waits_for = nullptr;
  return again;
}

void Scheduler::advance() { ++impl_->happened; }

void Scheduler::beside(const std::function<void()>& work) {
  Impl& impl = *impl_;
  if (impl.states.size() <= 1) return work();
  const int self = impl.running;
  auto& state = impl.states[static_cast<std::size_t>(self)];
  const auto come_back = [&] {
    std::unique_lock lock(impl.mutex);
    state.away = false;
    if (impl.running < 0) impl.running = self;
    impl.await_turn(lock, self);
  };
  {
    const std::unique_lock lock(impl.mutex);
    state.away = true;
    impl.pass_on();
  }
  try {
    work();
  } catch (...) {
    come_back();
    throw;
  }
  come_back();
}

}  // namespace tessera::tile
