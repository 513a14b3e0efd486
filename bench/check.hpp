// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "bench/data.hpp"

namespace tessera::bench {

/// How far results are from the oracle's on sampled rows and columns.
struct Deviation {
  double max_abs = 0.0;    ///< largest absolute deviation of any element looked at
  double sum_abs = 0.0;    ///< of all elements looked at
  std::int64_t count = 0;  ///< how many were looked at
  double worst = 0.0;      ///< largest deviation in units of its tolerance; above 1 is wrong
  std::string where{};     ///< of `worst`: "grad_w, column 17"

  /// Takes down how far one element is off; a NaN stays.
  void add(double off);
  /// Compares with its tolerance how far a result, `what`, is off; no tolerance allows a NaN.
  void hold(const std::string& what, double off, double tolerance);
  double mean_abs() const { return count == 0 ? 0.0 : sum_abs / static_cast<double>(count); }
};

/// Outputs and gradients as a call left them; those it does not write are missing.
using Outcome = ByName<HostTensor>;

/// What gradient filtering leaves out of one gradient, of all elements: the largest absolute
/// difference, and the Frobenius norm of the difference over that of the exact gradient. 0 for a
/// gradient that was not computed.
struct FilterError {
  double max = 0.0, norm = 0.0;
};
FilterError compare_gradients(const HostTensor& filtered, const HostTensor& exact);

/// The sampled rows of the bare products x . w: logits [B, V], row-major f32.
Deviation judge_products(const Data& data, const float* logits);

}  // namespace tessera::bench
