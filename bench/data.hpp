// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "bench/by_name.hpp"
#include "bench/row.hpp"

namespace tessera::bench {

/// What every row of a problem reads, made once on the host. Random, never zeros; labels follow
/// Zipf's law, as words do.
struct Data {
  ProblemKey key{};
  ByName<HostTensor> arrays{};  ///< the operator's operands
  std::vector<std::int32_t> labels{};
  std::vector<std::int64_t> counted{};  ///< the rows whose label is not ignored
  /// ProblemKey::target_pairs of each row, the label first; of an ignored row all are that.
  std::vector<std::int32_t> target_indices{};
  std::vector<float> target_probs{};
  std::vector<float> targets{};  ///< ProblemKey::dense_targets: [b, v], half of a row the label's
  /// lse of each row by the streaming implementation, in f32; what the loss is judged by, after
  /// some of its rows have been checked.
  std::vector<double> lse{};
  std::vector<double> label_logprob{};  ///< as lse, of dense targets
};
Data make_data(const ProblemKey& key, int threads);

/// Strides of a weight and of its gradient.
Dims w_strides(const ProblemKey& key);
/// Element `index` of an array of f32, bf16 or f16, widened.
double element(const void* data, DType type, std::int64_t index);
inline double element(const HostTensor& tensor, std::int64_t index) {
  return element(tensor.data(), tensor.dtype(), index);
}

// -- Random numbers -------------------------------------------------------------------------------

/// xorshift64*: the standard library's normal deviates take a minute for a large w.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u | 1u) {}
  std::uint64_t bits() {
    state_ ^= state_ >> 12, state_ ^= state_ << 25, state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// Mean 0, variance 1: the sum of four 16-bit uniforms, bell-shaped up to 3.4 deviations.
  float normal() {
    const std::uint64_t b = bits();
    const auto part = [&](int shift) { return static_cast<float>((b >> shift) & 0xffffu); };
    const float sum = part(0) + part(16) + part(32) + part(48);
    return (sum - 131070.0f) * (1.7320508f / 65536.0f);
  }

 private:
  std::uint64_t state_;
};

constexpr double zipf_shift = 2.7;        ///< Mandelbrot's, of Zipf's law
constexpr float spread_of_logits = 2.0f;  ///< about

void store(HostTensor& tensor, std::int64_t index, float value);
/// Normal, of standard deviation `scale`.
HostTensor random_tensor(DType type, const Dims& extents, const Dims& strides, std::uint64_t seed,
                         float scale);
/// Words by Zipf's law, numbered in the order of their frequency.
std::vector<std::int32_t> zipf_labels(std::int64_t b, std::int64_t v, std::uint64_t seed);

}  // namespace tessera::bench
