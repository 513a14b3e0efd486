// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "reference/oracle/oracle.hpp"

namespace tessera::test {

/// How far what a teacher adds to a loss may be off: tolerance.cpp's half for linear_distillation.
/// The derivation is in divergence_tolerance.cpp.
class DivergenceErrors {
 public:
  struct Row {
    double value = 0.0;                           ///< of the divergence; 0 where it is not finite
    double target_entropy = 0.0;                  ///< of the entropy of p
    double student_lse = 0.0, teacher_lse = 0.0;  ///< of both at the temperature
    double relative = 0.0;                        ///< of what the gradient is relative to
    /// |d divergence / du_v|, and how far it may be off; [v].
    std::vector<double> slope, slope_error;
  };

  /// `logits` and `errors` are the student's, [b, v], as tolerance.cpp has them; they are kept by
  /// reference. Without a teacher there is nothing to ask.
  DivergenceErrors(const oracle::Problem& problem, const std::vector<double>& logits,
                   const std::vector<double>& errors);
  Row of_row(std::int64_t row) const;

 private:
  const oracle::Problem& problem_;
  const std::vector<double>& logits_;
  const std::vector<double>& errors_;
  std::vector<double> teacher_, teacher_errors_;
};

}  // namespace tessera::test
