// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bench/session.hpp"

/// Two builds of tessera-bench in turns (--compare): each runs in a process of its own, which
/// makes a call when it is told to, so that what a shared machine does is in both. Pairs of such
/// processes come one after the other.
namespace tessera::bench {

/// Takes turns with the program `other` on every row that can run: prints its name, both medians
/// and the ratio of this build's time to the other's, with the interval that holds it with 95%
/// probability. `arguments`: what both are called with.
void compare_with(const std::string& other, const std::vector<std::string>& arguments,
                  const std::vector<Session::Planned>& rows, const Options& options);

/// What compare_with starts: prepares the row of that name, says so on stdout, and for each line
/// on stdin makes one call and answers with its seconds.
void answer_turns(Session& session, const std::string& name,
                  const std::vector<Session::Planned>& rows);

}  // namespace tessera::bench
