// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/execution.hpp"

/// How much of a machine a launch keeps busy, whatever its work-groups do, and the choice among
/// ways to cut it.
namespace tessera::engines {

/// Rounds that a machine takes for so many work-groups, of which it runs `slots` at once.
std::int64_t rounds_of(std::int64_t groups, std::int64_t slots);

/// What a launch leaves room for: its rounds over all slots, each as long as the longest group.
/// `longest` is in whatever unit the work is counted.
double room_of(std::int64_t groups, std::int64_t slots, double longest);
/// The same where groups differ: one round is as long as the longest, the others as the mean of all
/// that is `work`.
double room_of(std::int64_t groups, std::int64_t slots, double longest, double work);

/// The share of all launches together, weighted by FLOPs: 1 where every slot always has work.
double machine_share(const std::vector<PlannedLaunches>& launches);

/// Of the cost of one way, what another has to stay below to be taken in its place.
constexpr double worth_changing = 0.98;

/// Of `first`, and then `next`, next + step and so on while `is_left` holds, the one of the least
/// `cost`; another than `first` only where that saves 2% and more, or what else is worth it.
template <class IsLeft, class Cost>
std::int64_t cheapest(std::int64_t first, std::int64_t next, std::int64_t step,
                      const IsLeft& is_left, const Cost& cost, double worth = worth_changing) {
  std::int64_t best = first;
  double least = worth * cost(first);
  for (std::int64_t one = next; is_left(one); one += step) {
    const double own = cost(one);
    if (own >= least) continue;
    least = own;
    best = one;
  }
  return best;
}

}  // namespace tessera::engines
