// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <limits>

#include "host/linear_distillation/request.hpp"
#include "reference/streaming/distill.hpp"

/// Between what the operator's interface says of a row's divergence and what the streaming
/// reference reckons with.
namespace tessera::linear_distillation {

streaming::Divergence of(Divergence divergence);
streaming::DistillTerms terms_of(const Options& options);

streaming::DistillSums read(const DivergenceSums& row);
DivergenceSums partial_of(const streaming::DistillSums& sums);

/// A row of `divergence_statistics`; `no_statistics`: of one that has seen no column.
using Statistics = std::array<float, 5>;
constexpr float no_maximum = -std::numeric_limits<float>::infinity();
constexpr Statistics no_statistics = {no_maximum, 0.0f, no_maximum, 0.0f, 0.0f};
Statistics statistics_of(const streaming::DistillTerms& terms, const streaming::DistillSums& sums);
/// The sums that a row of statistics stands for.
streaming::DistillSums saved(const Statistics& statistics);

}  // namespace tessera::linear_distillation
