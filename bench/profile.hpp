// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "bench/measure.hpp"
#include "bench/row.hpp"

namespace tessera::bench {

/// What kernels at least do in one call, all of their launches together.
struct KernelWork {
  double flops = 0.0;  ///< of products
  double exps = 0.0;
  double bytes = 0.0;  ///< read and written
  double reads = 0.0;  ///< read alone, where next to nothing is written
};

/// By the names of kernels and of the tasks of `eigen`; "": of the kernel that takes longest, where
/// a call is little more than one. What is not here is not known: sums and lists of rows.
using Work = std::map<std::string, KernelWork>;

Work work_of(const Row& row, const Plan& plan, const CostEstimate& cost);

/// The calls of a profile.
struct ProfiledCalls {
  int count = 0;
  double seconds = 0.0;  ///< of the clock around them
  int threads = 1;       ///< that tasks of the host share
};

/// A line for each kernel, task, copy and wait, with the share of what bounds it: multiplying, exp,
/// reading or copying, each at its measured peak; and which part of the wall's time they are.
std::string profile_table(const Profile& profile, const ProfiledCalls& calls, const Work& work,
                          Peaks& peaks, peaks::Kind multiply);

}  // namespace tessera::bench
