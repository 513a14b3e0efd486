// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "reference/streaming/kernels.hpp"

/// How far rows of a student are from their teacher, from sums over blocks of columns.
namespace tessera::streaming {

/// Sums of one row over the columns seen so far, relative to the maxima.
struct DistillSums {
  float max_u = -std::numeric_limits<float>::infinity();  ///< NaN when any logit was NaN or +Inf
  float max_v = -std::numeric_limits<float>::infinity();
  double sum_u = 0.0, sum_v = 0.0;
  double cross = 0.0;  ///< DistillStretch::cross
  double exp_v = 0.0;
  double both = 0.0, from_q = 0.0, sum_q = 0.0;  ///< DistillMix, of a second look
  /// What the gradient is relative to, of a row that was saved: its other sums are not known. NaN:
  /// it follows from them.
  double relative = std::numeric_limits<double>::quiet_NaN();
};

/// What a call says of its teacher besides the logits.
struct DistillTerms {
  Divergence divergence = Divergence::forward_kl;
  float beta = 0.5f;
  float temperature = 1.0f;
  double alpha = 0.5;
};

/// The sums of a row to which a stretch has been added.
void add_stretch(const DistillTerms& terms, const DistillStretch& stretch, DistillSums& sums);
/// Appends those of other columns of the same row.
void merge_into(const DistillTerms& terms, const DistillSums& later, DistillSums& sums);

/// What kernels need of a row: so far, or of all its columns.
DistillRow distill_row(const DistillTerms& terms, const DistillSums& sums);
/// The same for the gradient, by which the loss's cotangent (weight * dloss) is multiplied.
DistillRow distill_row(const DistillTerms& terms, const DistillSums& sums, double cotangent);

/// What the gradient is relative to: the divergence, or KL(q||m) for jsd.
double relative_of(const DistillTerms& terms, const DistillSums& sums);
/// The divergence and the entropy of the teacher's distribution, of all columns' sums.
double divergence_of(const DistillTerms& terms, const DistillSums& sums);
double target_entropy_of(const DistillSums& sums);

}  // namespace tessera::streaming
