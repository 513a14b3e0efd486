// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/session.hpp"

/// tessera-bench --compare: two builds take turns, call by call. Each runs in a process of its own
/// and makes one call whenever it is told to, so that other work on a shared machine slows both.
/// Several pairs of such processes run, one pair after the other.
namespace tessera::bench {

/// Compares this program with the program `other` on every row that can run. Prints for each row
/// its name, the median time of a call of both programs, the ratio of this program's time to the
/// other's with its 95% interval, and the number of pairs of processes. `arguments`: the options
/// that both programs are started with.
void compare_with(const std::string& other, const std::vector<std::string>& arguments,
                  const std::vector<Session::Planned>& rows, const Options& options);

/// Runs in each process that compare_with starts, once the row is prepared. Prints "ready"; then
/// makes one call for each line on stdin, and prints its seconds.
void answer_turns(const std::function<double()>& timed_call);

}  // namespace tessera::bench
