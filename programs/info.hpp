// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "programs/problem.hpp"
#include "programs/report.hpp"
#include "tessera/dtype.hpp"
#include "tessera/execution.hpp"

namespace tessera::programs {

/// The command line of tessera-info.
struct InfoOptions {
  std::string device;
  std::string operator_name;
  std::string shape;       ///< as it was given; empty: no question about a shape
  ProblemExtents extents;  ///< those of the shape, by the letters of the operator
  std::vector<SetOption> set;
  std::optional<DType> x_dtype, w_dtype;
  bool w_is_vh = false;
  Pass pass = Pass::value_and_grad;
  std::vector<std::string> implementation;
  std::vector<std::int64_t> block_sizes;
  std::optional<std::int64_t> workspace_bytes;
  std::string dump;   ///< folder for what is compiled; empty: none
  std::string facts;  ///< a machine that is not here, to plan for; empty: the device's own
  bool explain = false;
  bool peaks = false;
  bool json = false;
};

void add_info_options(CLI::App& app, InfoOptions& options);
/// Throws `Error invalid_argument` for options that do not go together. Sets `pass` to forward
/// where the operator lacks the default and none was given.
void check_info_options(const CLI::App& app, InfoOptions& options);

/// `devices`, `default_device`, `implementations` and, with a shape, `request`, `plan` (or
/// `plan_error`), `cost` and `verdicts`: for each implementation whether it would run and why not.
/// With `explain`: in `plan`, the schedules that were `considered` and the `bound` of that taken.
/// With `peaks`: `peaks`, measured now, of the device (where there is one) and of the host.
Json gather_info(const InfoOptions& options);

/// The same for people.
std::string info_text(const Json& info);

}  // namespace tessera::programs
