// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tuning/tune/raw.hpp"

namespace tessera::tuning {

/// Runs tessera-bench, or what takes its place, in a process of its own, and writes to `record`
/// what it says of its one row: times, deviations, driver, revision, date and status. The status is
/// "ok", "noisy", or why the candidate must not win: "refused", "failed" or "wrong" as
/// tessera-bench has it, "crashed", "hung" (there is no answer after so many seconds; the process
/// is killed), "not_finite".
void measure_in_child(const std::string& program, const std::vector<std::string>& arguments,
                      double timeout_seconds, Record& record);

}  // namespace tessera::tuning
