// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "bench/arrays.hpp"

namespace tessera::bench {

/// How far results are from the oracle's on sampled rows and columns.
struct Deviation {
  double max_abs = 0.0;  ///< largest absolute deviation of any element looked at
  double worst = 0.0;    ///< largest deviation in units of its tolerance; above 1 is wrong
  std::string where{};   ///< of `worst`: "grad_w, column 17"
};

/// Outputs as a call left them; those it does not write are empty.
struct Outcome {
  HostTensor loss{}, statistics{}, grad_x{}, grad_w{}, grad_logits{};
};

/// Compares with the oracle, in double: sampled rows of the statistics, of grad_x and of
/// grad_logits; the loss; sampled columns of grad_w.
///
/// For the loss and grad_w every row's lse is needed, which in double would cost more than the
/// bench itself; these come from the streaming implementation in f32, and are checked on the
/// sampled rows first.
///
/// With `filter_eps` the gradients may lack what ExecutionOptions::gradient_filter_eps allows.
Deviation judge(const Data& data, const Outcome& outcome, float filter_eps = 0.0f);

/// What gradient filtering leaves out, of all elements: the largest absolute difference, and the
/// Frobenius norm of the difference over that of the exact gradient. 0 for one not computed.
struct FilterError {
  double grad_x_max = 0.0, grad_x_norm = 0.0;
  double grad_w_max = 0.0, grad_w_norm = 0.0;
};
FilterError compare_gradients(const Outcome& filtered, const Outcome& exact);

/// The sampled rows of bare products: logits [B, V], row-major f32.
Deviation judge_products(const Data& data, const float* logits);

}  // namespace tessera::bench
