// SPDX-License-Identifier: Apache-2.0
#include "bench/turns.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "bench/measure.hpp"
#include "bench/player.hpp"

namespace tessera::bench {
namespace {

/// A pair of processes has so long for an answer: what compiles for an hour has gone astray.
constexpr double patience = 3600.0;

}  // namespace

void compare_with(const std::string& other, const std::vector<std::string>& arguments,
                  const std::vector<Session::Planned>& rows, const Options& options) {
  std::signal(SIGPIPE, SIG_IGN);  // instead, call() notices that a process has ended
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  fmt::print("{:<72} {:>10} {:>10} {:>7} {:>16} {:>6}\n", "row", "ms", "other's", "ratio", "95%",
             "pairs");
  for (const auto& planned : rows) {
    if (!planned.refusal.empty()) continue;
    auto words = arguments;
    words.insert(words.end(), {"--turns", planned.row.name()});
    // Where the memory of a process happens to lie changes its times by some percent in all rounds.
    // So the interval is that of one ratio per pair of processes.
    std::vector<double> seconds, seconds_of_other, ratios;
    for (int pair = 0; pair < options.samples; ++pair) {
      Players players;
      for (const auto& program : {self, other}) {
        players.push_back(std::make_unique<Player>(program, words, patience));
      }
      const auto times = take_turns(players, options.max_seconds / options.samples);
      seconds.push_back(quantile(times[0], 0.5));
      seconds_of_other.push_back(quantile(times[1], 0.5));
      ratios.push_back(median_ratio(times[0], times[1]));
    }
    const auto ratio = ratio_of(ratios);
    fmt::print("{:<72} {:>10.3f} {:>10.3f} {:>7.3f} {:>7.3f} {:>8.3f} {:>6}\n", planned.row.name(),
               1e3 * quantile(seconds, 0.5), 1e3 * quantile(seconds_of_other, 0.5), ratio.median,
               ratio.low, ratio.high, ratios.size());
    std::fflush(stdout);
  }
}

void answer_turns(const std::function<double()>& timed_call) {
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << fmt::format("{:.9g}", timed_call()) << std::endl;
  }
}

}  // namespace tessera::bench
