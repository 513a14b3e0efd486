// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/attention.hpp"

/// The textbook of attention, in double, and how far an implementation in f32 may be from it.
namespace tessera::test {

struct AttentionRow {
  double lse = 0.0, lse_tolerance = 0.0;
  /// [E]; the tolerances are without the rounding to the type of y.
  std::vector<double> y{}, y_tolerance{};
};

class AttentionText {
 public:
  /// Reads the inputs, which lie in host memory and keep the rules. `exact_logits`: products and
  /// scale are such that f32 has every logit exactly; what is left are exponentials and sums.
  AttentionText(const attention::Inputs& inputs, const attention::Options& options,
                bool exact_logits = false);

  std::int64_t rows() const { return batch_ * q_heads_ * s_; }
  /// Row `flat` of [..., Q, S].
  AttentionRow row(std::int64_t flat) const;

 private:
  struct Logit {
    std::int64_t key;  ///< -1: the sink
    double value, error;
  };
  struct Place {
    std::int64_t batch, head, query;
  };
  /// Logits of the keys that the query sees, and the sink.
  std::vector<Logit> logits_of(const Place& at) const;
  Logit logit_of(const Place& at, std::int64_t key, double position) const;
  std::int64_t kv_head_of(const Place& at) const {
    return at.batch * kv_heads_ + at.head / (q_heads_ / kv_heads_);
  }
  double bias_at(const Place& at, std::int64_t key) const;

  attention::Options options_;
  bool exact_logits_;
  double scale_;
  std::int64_t batch_ = 1, q_heads_, kv_heads_, s_, t_, d_, e_;
  Dims batch_extents_, bias_extents_;
  std::vector<double> q_, k_, v_, bias_, lengths_, sinks_, slopes_;
};

/// The elements of a view in host memory, row-major.
std::vector<double> elements_of(const View& view);

}  // namespace tessera::test
