// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::tile {

/// Takes several agents (one per core of each device) through their bodies, one at a time: the
/// machine's state needs no locks, an order of events is one of a seed and can be repeated, and
/// when nobody can go on that is known at once.
///
/// A body runs until it waits for what is not there yet (`wait_until`), or comes to a point where
/// another may go first (`yield`). What it computes on its own may go on beside the others
/// (`beside`).
class Scheduler {
 public:
  struct Agent {
    std::string name;  ///< for messages, "core 1" or "device 0, core 1"
    std::function<void()> body;
  };

  /// Equal seeds give equal orders. 0: the agent that runs goes on until it waits, and the first in
  /// line follows it.
  explicit Scheduler(std::uint64_t seed);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Runs every agent to its end. Whatever one of them throws ends the others where they stand, and
  /// is thrown here. One agent alone runs on the caller's thread.
  void run(const std::vector<Agent>& agents);

  /// For the running agent: returns when `ready` is true. `ready` is asked often and changes
  /// nothing; `waits_for` ends the sentence "core 1 waits for" where nobody can go on (Error of a
  /// deadlock).
  void wait_until(const std::function<bool()>& ready,
                  const std::function<std::string()>& waits_for);

  /// For the running agent: another may go first, if the seed says so.
  void yield();

  /// For the running agent, which asks for something without waiting for it: others that can go on
  /// have a turn first, also where the seed is 0. True when nothing has happened (`advance`) since
  /// it asked before. When all who have not ended wait or poll, and nothing happens for
  /// `max_polls` questions of each who polls, that is a deadlock; `polls_for` as `waits_for`.
  bool poll(const std::function<std::string()>& polls_for);
  /// Something happened that polling agents may have been waiting for.
  void advance();
  /// More than a loop that gives up by itself would ask in vain, and asked within milliseconds.
  static constexpr std::int64_t max_polls = 10000;

  /// For the running agent: others may run beside `work`, which touches nothing that they do.
  void beside(const std::function<void()>& work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::tile
