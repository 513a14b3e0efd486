// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "bench/check.hpp"
#include "reference/oracle/oracle.hpp"

namespace tessera::bench {

// Tolerances. u = 2^-24. A logit is a dot product of H terms in f32: 4 sqrt(H + 2) u |x| |w| holds
// for all but about one in a thousand sums (Higham and Mary 2019), plus 4 u |logit| for scaling.
// Sums over V of blocked partial sums: (8 + sqrt(V)) u, and 3 u (max - logit) for the argument of
// exp. Gradients are compared norm-wise, by |w| (d dz + 4 sqrt(V) u |dz|) summed; where x and w are
// both bf16 an engine may round dz to bf16, 2^-8 more. Last, one rounding to the view's type.

constexpr double unit_roundoff = 0x1p-24;  ///< of f32

/// Of rows, that are looked at: few, for a row of the oracle costs 2HV and a column 2BH in double;
/// the rest is checked through the sums that these take part in.
constexpr std::int64_t sampled_rows = 4;
constexpr std::int64_t sampled_columns = 8;

/// The ends, and others spread over [0, n) by the golden ratio; `always` joins them.
std::vector<std::int64_t> sample(std::int64_t n, std::int64_t count, std::int64_t always);

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
double root(std::int64_t n);
/// Of one rounding to `type`.
double roundoff(DType type);
/// The least that an element of this type can be off by: denormals may read as 0.
double smallest(DType type);

/// What the rows of a problem are compared with: the labels of these, or what they have instead.
void set_targets(oracle::Problem& problem, const Data& data, const std::vector<std::int64_t>& rows);

/// Where an operator's logits come from.
struct Logits {
  /// In double, of these rows: [rows, V].
  std::function<std::vector<double>(const std::vector<std::int64_t>&)> of_rows;
  std::function<double(std::int64_t row, std::int64_t column)> one;
  /// What a logit may be off by beyond 4 u |logit|.
  std::function<double(std::int64_t row, std::int64_t column)> error;
  std::vector<double> row_norms{};  ///< errors of a row grow with its norm; empty: all alike
};

/// Compares what losses have in common with the oracle, in double: sampled rows of the statistics,
/// and the loss. An operator's gradients are its own; the members below help to judge them.
///
/// For the loss every row's lse is needed, which in double would cost more than the bench itself;
/// these come from the streaming implementation in f32, and are checked on the sampled rows first.
class LossJudge {
 public:
  /// With `filter_eps` gradients may lack what gradient_filter_eps allows.
  LossJudge(const Data& data, Logits logits, double filter_eps);

  /// The statistics and the loss, where the call wrote them.
  void values(const Outcome& outcome);
  void statistics(const HostTensor& tensor);
  Deviation finish() const { return deviation_; }

  const Data& data() const { return data_; }
  double filter_eps() const { return filter_eps_; }
  /// The rows that are looked at, all of which count.
  const std::vector<std::int64_t>& rows() const { return rows_; }
  /// These rows with their logits; without reduction.
  const oracle::Problem& problem() const { return problem_; }

  /// What dz of row number `i` of `rows()` may be off by, where the logit is z.
  double dz_error(std::size_t i, double z, double dz) const;
  double largest_lse_error() const;
  /// The relative and the absolute part of rounding dz to bf16, or to f16 (tests/support/
  /// tolerance.cpp).
  double dz_rounding() const;
  double dz_floor() const;

  /// Takes down a deviation of one element.
  void check(const char* what, std::int64_t index, double deviation, double tolerance);
  /// Norm-wise: `count` elements of `tensor` from `offset` on, `stride` apart.
  void compare(const char* what, std::int64_t index, const double* wanted, std::int64_t count,
               double tolerance, const HostTensor& tensor, std::int64_t offset,
               std::int64_t stride);

 private:
  struct RowError {
    double logit = 0.0;  ///< the largest of the row
    double lse = 0.0;
  };
  /// Compares a deviation with its tolerance.
  void hold(const char* what, std::int64_t index, double deviation, double tolerance);
  RowError row_error(std::size_t i) const;
  void loss(const HostTensor& tensor);

  const Data& data_;
  Logits logits_;
  double filter_eps_;
  std::vector<std::int64_t> rows_{};
  oracle::Problem problem_{};
  oracle::Values values_{};
  std::vector<RowError> errors_{};
  Deviation deviation_{};
};

}  // namespace tessera::bench
