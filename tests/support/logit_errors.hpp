// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/oracle/oracle.hpp"

/// What tolerance.cpp and divergence_tolerance.cpp have in common: how far logits may be off.
namespace tessera::test {

/// The unit roundoff of f32.
inline constexpr double u = 0x1p-24;
/// How many times sqrt(n) u a sum of n terms may be off (tolerance.cpp).
inline constexpr double lambda = 4.0;

inline double root(std::int64_t n) { return std::sqrt(static_cast<double>(n)); }

/// What a sum of positive terms, one of which may be nearly all of it, may be off by, in u. The
/// small ones are then lost in one direction: half a unit for each of few terms, and for each tile
/// of a dozen columns of many, until a slice of the vocabulary ends, which has sums of its own.
inline double sum_terms(std::int64_t n) {
  const double few = 0.5 * static_cast<double>(std::min<std::int64_t>(n, 64));
  const double tiles = std::min(static_cast<double>(n) / 24.0, 256.0);
  return std::max({root(n), few, tiles});
}

/// Whether all rows of x are one.
bool has_equal_rows(const oracle::Problem& problem);

/// What a sum of a term of each row may be off by, in u of the sum of their sizes. Where many terms
/// are equal (rows that are; a word of no probability, whose dz is the smoothing's share alone) the
/// roundings have a common sign.
inline double sum_over_rows(const oracle::Problem& problem, bool equal_terms) {
  const double random = lambda * root(problem.b);
  return equal_terms ? std::max(random, static_cast<double>(problem.b)) : random;
}

/// Norms of the finite elements of each row of a [rows, columns] matrix, or of each column.
std::vector<double> norms(const std::vector<double>& a, std::int64_t rows, std::int64_t columns,
                          bool of_columns);

/// d logit / dz without its sign.
double slope_of(const LossOptions& options, double logit);

/// e_bv of tolerance.cpp for each of the problem's final logits, [b, v]; 0 where one is infinite.
std::vector<double> logit_errors(const oracle::Problem& problem, const std::vector<double>& logits);

}  // namespace tessera::test
