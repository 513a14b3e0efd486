// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "reference/oracle/oracle.hpp"
#include "tessera/dtype.hpp"

namespace tessera::test {

/// What rounds besides f32 accumulation.
struct Precision {
  bool from_lse = false;  ///< backward formed p from lse, not from (max, sum)
  DType dz = DType::f32;  ///< which dz may be rounded to before the gradient products
  DType grad_x = DType::f32, grad_w = DType::f32, grad_bias = DType::f32;
  double gradient_filter_eps = 0.0;  ///< what may be left out of grad_x and grad_w
};

/// How far a result may be from the oracle's. The derivation is in tolerance.cpp, and nowhere else
/// is a tolerance chosen. Entries of rows whose result is not finite are 0: there the class of the
/// value decides.
struct ValueTolerance {
  std::vector<double> loss;                                 ///< as the oracle's loss
  std::vector<double> lse, label_logprob, entropy, z_loss;  ///< [b]
  std::vector<double> divergence, target_entropy;           ///< [b], with a teacher
  /// [b], of divergence_statistics: both log-sum-exps, what the gradient is relative to.
  std::vector<double> student_lse, teacher_lse, relative;
  std::vector<double> logit;  ///< [b, v]
  std::vector<double> max;    ///< [b]
};

/// Norm-wise: the Euclidean norm of the deviation of a row of grad_x, a column of grad_w, a row of
/// grad_logits; pointwise for grad_bias.
struct GradientTolerance {
  std::vector<double> grad_x;       ///< [b]
  std::vector<double> grad_w;       ///< [v]
  std::vector<double> grad_bias;    ///< [v]
  std::vector<double> grad_logits;  ///< [b, v], pointwise
};

ValueTolerance value_tolerance(const oracle::Problem& problem, const oracle::Values& values);
GradientTolerance gradient_tolerance(const oracle::Problem& problem, const oracle::Values& values,
                                     const oracle::Gradients& gradients,
                                     const ValueTolerance& value_tolerance,
                                     const Precision& precision);

/// Half a unit in the last place, relative, and the spacing of the smallest numbers, absolute.
double unit_roundoff(DType type);
double smallest_step(DType type);

}  // namespace tessera::test
