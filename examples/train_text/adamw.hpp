// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace train_text {

/// What one step of AdamW needs besides the gradients.
struct AdamWStep {
  float learning_rate = 1e-3f;
  float beta1 = 0.9f;
  float beta2 = 0.99f;
  /// Large enough that rounding noise in a gradient that should be 0 does not become a step.
  float epsilon = 1e-7f;
  float weight_decay = 0.01f;
  std::int64_t step = 1;  ///< 1 for the first
};

/// Rises over the first 5% of the run, then falls along a cosine to a tenth.
inline double learning_rate(double peak, double done) {
  constexpr double warm_up = 0.05;
  if (done < warm_up) return peak * (done + 1e-3) / warm_up;
  const double along = (done - warm_up) / (1.0 - warm_up);
  return peak * (0.55 + 0.45 * std::cos(std::numbers::pi * std::min(along, 1.0)));
}

/// One array of parameters with its gradient and AdamW's two moments (Loshchilov and Hutter, 2019).
class Parameter {
 public:
  using Array = Eigen::Array<float, Eigen::Dynamic, 1>;
  using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  Parameter() = default;
  Parameter(Eigen::Index rows, Eigen::Index cols, bool decays)
      : value(RowMajor::Zero(rows, cols)),
        grad(RowMajor::Zero(rows, cols)),
        first_(Array::Zero(rows * cols)),
        second_(Array::Zero(rows * cols)),
        decays_(decays) {}

  RowMajor value;
  RowMajor grad;

  /// One pass over memory: value, gradient and both moments are read once. The gradient is scaled
  /// by `grad_scale` first (clipping).
  void update(const AdamWStep& s, float grad_scale) {
    const float correction1 = 1.0f - std::pow(s.beta1, static_cast<float>(s.step));
    const float correction2 = 1.0f - std::pow(s.beta2, static_cast<float>(s.step));
    const float rate = s.learning_rate / correction1;
    const float root_scale = 1.0f / std::sqrt(correction2);
    const float keep = 1.0f - (decays_ ? s.learning_rate * s.weight_decay : 0.0f);
    // Pieces that stay in the first-level cache, so that memory is read and written once although
    // each line below is a vectorised loop of its own.
    constexpr Eigen::Index piece = 1024;
    for (Eigen::Index at = 0; at < value.size(); at += piece) {
      const Eigen::Index n = std::min(piece, value.size() - at);
      Eigen::Map<Array> p(value.data() + at, n);
      const Eigen::Map<const Array> g(grad.data() + at, n);
      auto m = first_.segment(at, n);
      auto v = second_.segment(at, n);
      m = s.beta1 * m + (1.0f - s.beta1) * grad_scale * g;
      v = s.beta2 * v + (1.0f - s.beta2) * (grad_scale * g).square();
      p = keep * p - rate * m / (v.sqrt() * root_scale + s.epsilon);
    }
  }

 private:
  Array first_;
  Array second_;
  bool decays_ = false;
};

}  // namespace train_text
