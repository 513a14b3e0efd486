// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "programs/npy.hpp"
#include "programs/report.hpp"
#include "programs/score_options.hpp"
#include "tessera/execution.hpp"

namespace tessera::programs {

/// The arrays that the command line names; those not given are empty.
struct ScoreArrays {
  NpyArray x, w, logits, labels, bias, weight, class_weight, dloss, dlse, statistics;
  View w_hv;  ///< w as [H, V], whatever its layout in the file

  Json types() const;
};

ScoreArrays load_arrays(const ScoreOptions& options);

/// What one run reports.
struct ScoreOutcome {
  Dispatch dispatch;
  double seconds_first = 0;  ///< wall time of the first call, compiling included
  double seconds = 0;        ///< wall time of the second call
};

/// Runs what the options ask for, writes the files of --out, all or none, and prints a line on
/// what ran and one for each warning. Throws Error.
void score(const ScoreOptions& options);

}  // namespace tessera::programs
