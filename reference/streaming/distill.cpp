// SPDX-License-Identifier: Apache-2.0
#include "reference/streaming/distill.hpp"

#include <cmath>

namespace tessera::streaming {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

/// The teacher has no distribution.
void poison(DistillSums& s) {
  s.max_u = s.max_v = std::numeric_limits<float>::quiet_NaN();
  s.sum_u = s.sum_v = s.cross = s.exp_v = nan_value;
}

/// The student has none.
void poison_student(DistillSums& s) {
  s.max_u = std::numeric_limits<float>::quiet_NaN();
  s.sum_u = s.cross = nan_value;
}

/// How far what was relative to `old` moves down; 0 where nothing finite was there.
double step_of(float old, float max) {
  return old == -infinity ? 0.0 : static_cast<double>(old) - static_cast<double>(max);
}

/// Restates the sums relative to maxima that are not below their own.
void move(const DistillTerms& terms, float max_u, float max_v, DistillSums& s) {
  const double u = step_of(s.max_u, max_u);
  const double v = step_of(s.max_v, max_v);
  s.max_u = max_u;
  s.max_v = max_v;
  if (u == 0.0 && v == 0.0) return;  // the many blocks that do not move them round nothing
  const bool reverse = terms.divergence == Divergence::reverse_kl;
  const double own = reverse ? s.sum_u : s.sum_v;
  if (own != 0.0) {
    const double factor = std::exp(reverse ? u : v);
    // Nothing is left of what was there where the factor is 0, not even of an infinity.
    s.cross = factor == 0.0 ? 0.0 : factor * (s.cross + (reverse ? u - v : v - u) * own);
  }
  s.exp_v = std::exp(v) * (s.exp_v + v * s.sum_v);
  s.sum_u *= std::exp(u);
  s.sum_v *= std::exp(v);
}

}  // namespace

void merge_into(const DistillTerms& terms, const DistillSums& later, DistillSums& sums) {
  if (std::isnan(sums.max_v) || std::isnan(later.max_v)) return poison(sums);
  DistillSums other = later;
  const bool no_student = std::isnan(sums.max_u) || std::isnan(later.max_u);
  if (no_student) sums.max_u = other.max_u = 0.0f;  // whatever: what has it in it is poisoned below
  const float max_u = sums.max_u > other.max_u ? sums.max_u : other.max_u;
  const float max_v = sums.max_v > later.max_v ? sums.max_v : later.max_v;
  move(terms, max_u, max_v, sums);
  move(terms, max_u, max_v, other);
  sums.sum_u += other.sum_u;
  sums.sum_v += other.sum_v;
  sums.cross += other.cross;
  sums.exp_v += other.exp_v;
  sums.both += other.both;
  sums.from_q += other.from_q;
  sums.sum_q += other.sum_q;
  if (no_student) poison_student(sums);
}

void add_stretch(const DistillTerms& terms, const DistillStretch& stretch, DistillSums& sums) {
  if (std::isnan(stretch.base_v)) return poison(sums);
  DistillSums other;
  other.max_u = stretch.base_u;
  other.max_v = stretch.base_v;
  other.sum_u = static_cast<double>(stretch.sum_u);
  other.sum_v = static_cast<double>(stretch.sum_v);
  other.cross = static_cast<double>(stretch.cross);
  other.exp_v = static_cast<double>(stretch.exp_v);
  merge_into(terms, other, sums);
}

DistillRow distill_row(const DistillTerms& terms, const DistillSums& s) {
  DistillRow row = {};
  row.divergence = terms.divergence;
  row.inverse_temperature = 1.0f / terms.temperature;
  row.beta = terms.beta;
  row.max_u = s.max_u;
  row.max_v = s.max_v;
  row.log_sum_u = static_cast<float>(std::log(s.sum_u));
  row.log_sum_v = static_cast<float>(std::log(s.sum_v));
  return row;
}

DistillRow distill_row(const DistillTerms& terms, const DistillSums& sums, double cotangent) {
  DistillRow row = distill_row(terms, sums);
  row.constant = static_cast<float>(relative_of(terms, sums));
  // alpha T^2 by the logit, which is T u.
  const double factor = terms.alpha * static_cast<double>(terms.temperature) * cotangent;
  const bool is_one = !std::isnan(sums.sum_u) && !std::isnan(sums.sum_v);
  row.factor = static_cast<float>(factor == 0.0 || is_one ? factor : nan_value);
  return row;
}

namespace {

/// The divergence that the sums come to; rounding may put it below 0.
double rounded_divergence(const DistillTerms& terms, const DistillSums& s) {
  if (std::isnan(s.sum_u) || std::isnan(s.sum_v)) return nan_value;
  if (terms.divergence == Divergence::jsd) return s.both;
  const double log_u = std::log(s.sum_u), log_v = std::log(s.sum_v);
  if (terms.divergence == Divergence::reverse_kl) return (s.cross / s.sum_u - log_u) + log_v;
  return (s.cross / s.sum_v - log_v) + log_u;
}

}  // namespace

double relative_of(const DistillTerms& terms, const DistillSums& s) {
  if (!std::isnan(s.relative)) return s.relative;
  if (terms.divergence != Divergence::jsd) return rounded_divergence(terms, s);
  // A mean over q, whose sum is 1 but for rounding: a student that is sure of a word is at the
  // mean.
  return s.from_q / s.sum_q;
}

double divergence_of(const DistillTerms& terms, const DistillSums& s) {
  const double value = rounded_divergence(terms, s);
  return value < 0.0 ? 0.0 : value;  // a NaN compares false and stays
}

double target_entropy_of(const DistillSums& s) { return std::log(s.sum_v) - s.exp_v / s.sum_v; }

}  // namespace tessera::streaming
