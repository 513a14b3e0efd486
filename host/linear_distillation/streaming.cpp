// SPDX-License-Identifier: Apache-2.0
#include "host/linear_distillation/streaming.hpp"

#include <cmath>
#include <limits>

namespace tessera::linear_distillation {

streaming::Divergence of(Divergence divergence) {
  switch (divergence) {
    case Divergence::reverse_kl:
      return streaming::Divergence::reverse_kl;
    case Divergence::jsd:
      return streaming::Divergence::jsd;
    default:
      return streaming::Divergence::forward_kl;
  }
}

streaming::DistillTerms terms_of(const Options& options) {
  return {.divergence = of(effective_divergence(options)),
          .beta = options.beta,
          .temperature = options.temperature,
          .alpha = static_cast<double>(options.alpha)};
}

namespace {

/// A maximum that is NaN says that the row has no distribution; a device may have left it to the
/// sum, or counted an infinite logit.
float maximum_of(float max, float sum) {
  const bool is_one = !std::isnan(sum) && max != std::numeric_limits<float>::infinity();
  return is_one ? max : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

streaming::DistillSums read(const DivergenceSums& row) {
  streaming::DistillSums sums;
  sums.max_u = maximum_of(row.max_u, row.sum_u);
  sums.max_v = maximum_of(row.max_v, row.sum_v);
  sums.sum_u = static_cast<double>(row.sum_u);
  sums.sum_v = static_cast<double>(row.sum_v);
  sums.cross = static_cast<double>(row.cross);
  sums.exp_v = static_cast<double>(row.exp_v);
  return sums;
}

DivergenceSums partial_of(const streaming::DistillSums& sums) {
  return {.max_u = sums.max_u,
          .max_v = sums.max_v,
          .sum_u = static_cast<float>(sums.sum_u),
          .sum_v = static_cast<float>(sums.sum_v),
          .cross = static_cast<float>(sums.cross),
          .exp_v = static_cast<float>(sums.exp_v)};
}

Statistics statistics_of(const streaming::DistillTerms& terms, const streaming::DistillSums& sums) {
  return {sums.max_u, static_cast<float>(sums.sum_u), sums.max_v, static_cast<float>(sums.sum_v),
          static_cast<float>(streaming::relative_of(terms, sums))};
}

streaming::DistillSums saved(const Statistics& statistics) {
  streaming::DistillSums sums;
  sums.max_u = maximum_of(statistics[0], statistics[1]);
  sums.max_v = maximum_of(statistics[2], statistics[3]);
  sums.sum_u = static_cast<double>(statistics[1]);
  sums.sum_v = static_cast<double>(statistics[3]);
  sums.relative = static_cast<double>(statistics[4]);
  return sums;
}

}  // namespace tessera::linear_distillation
