// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>

#include "tests/support/problem.hpp"

/// What operators make their problems of: random numbers, and the parts that every loss has.
namespace tessera::test {

inline std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  /// Below `n`.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n));
  }
  /// Box and Muller rather than std::normal_distribution, whose sequence is the library's choice.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }
  double with_outliers() {
    const double value = normal();
    return engine_() % 64 == 0 ? 8.0 * value : value;
  }

 private:
  std::mt19937_64 engine_;
};

/// Of a column, in Data::large_spread.
inline double hash_sign(std::int64_t column) {
  return (column * 2654435761ll >> 7) % 2 == 0 ? 1.0 : -1.0;
}

/// Whether a problem of this data masks words at all, and which.
inline bool has_masks(Data data) { return data == Data::masked || data == Data::masked_label; }
inline bool is_masked(std::int64_t column, std::int64_t v) {
  return column < v / 2 || column % 7 == 3;
}

/// The extents and options of the case, and no numbers yet.
oracle::Problem empty_problem(const Case& c);

/// Labels by Case::labels. `spoil(row)` makes NaNs of what the operator has in an ignored row,
/// which must not be read.
void add_labels(const Case& c, oracle::Problem& p, Numbers& numbers,
                const std::function<void(std::int64_t row)>& spoil);

/// Weights, class weights and cotangents: what with_loss_inputs adds to an operator's own inputs.
void add_loss_inputs(const Case& c, oracle::Problem& p, Numbers& numbers);

}  // namespace tessera::test
