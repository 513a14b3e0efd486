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

/// Has calls of several processes take turns for so many seconds. `records`: what measure_in_child
/// said of each, and `arguments` what it is started with. Writes the times and the date to all
/// records; or, where one fails, why to that one alone. The shares of the peak are those of the
/// first record and of its call, by the ratios of the times: a call is credited with the same work
/// in all of them.
void turns_of_children(const std::string& program,
                       const std::vector<std::vector<std::string>>& arguments, double seconds,
                       double timeout_seconds, std::vector<Record>& records);

}  // namespace tessera::tuning
