// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/row.hpp"
#include "tuning/tune/problem.hpp"
#include "tuning/tune/space.hpp"

namespace tessera::tuning {

enum class Strategy {
  grid,    ///< every candidate once, those nearest to the heuristic first
  random,  ///< candidates by lot, once
  halving  ///< those nearest to the heuristic, by lot among equals; the faster half goes on
};

/// How to search, and for how long.
struct SearchPlan {
  Strategy strategy = Strategy::halving;
  double budget_seconds = 600.0;  ///< of all problems together
  double timeout_seconds = 120.0;
  std::uint64_t seed = 1;
  int rounds = 9;     ///< in which the best take turns with the heuristic
  int finalists = 2;  ///< how many those are at most
  bool resume = false;
  bool dry_run = false;
  std::vector<std::string> vary{};  ///< names of blocks and knobs; empty: all
  std::string bench{};              ///< the program that measures
  std::string out{};                ///< the file of raw results
};

/// Measures the candidates of each problem, each in a process of its own: once or more in a search,
/// then the best of them and the heuristic in rounds. Prints what it found; progress is on stderr.
void tune(Context& context, const bench::Options& options, const std::vector<Problem>& problems,
          const SearchPlan& plan);

}  // namespace tessera::tuning
