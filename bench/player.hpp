// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

/// Processes that take turns, call by call, so that other work on a shared machine slows all.
namespace tessera::bench {

/// Starts the program, with these in the place of its standard input, output and, from 0 on, error.
/// It ends when this process does, and leads a process group, so that what it starts itself can be
/// killed with it. Negative: none could be started. A program that cannot be run ends with 127.
pid_t start_process(const std::string& program, const std::vector<std::string>& arguments, int in,
                    int out, int err = -1);

/// A process of tessera-bench --turns, which makes a call whenever it is told to, and ends when
/// this one does. Where it ends, or gives no answer after so many seconds, the functions throw
/// Error, and `failure` says why.
class Player {
 public:
  Player(std::string program, const std::vector<std::string>& arguments, double timeout_seconds);
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;
  ~Player();

  void wait_until_ready();
  /// Seconds of one call.
  double call();

  /// "failed", "crashed" or "hung"; empty where all went well.
  const std::string& failure() const { return failure_; }

 private:
  [[noreturn]] void fail(const char* status, const std::string& why);
  std::string line(const char* why_none);

  std::string program_;
  double timeout_;
  pid_t pid_ = 0;
  int in_ = -1, out_ = -1;
  std::string read_{};  ///< of its output, beyond the last line that was taken
  std::string failure_{};
};

/// A group that takes turns.
using Players = std::vector<std::unique_ptr<Player>>;
/// Takes turns for so many seconds, and for three rounds at least; in every second round the order
/// is reversed. Returns the seconds of each player's calls, by round.
std::vector<std::vector<double>> take_turns(const Players& players, double seconds);
/// The median over the rounds of the ratio of both times.
double median_ratio(const std::vector<double>& times, const std::vector<double>& of_other);

}  // namespace tessera::bench
