// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/loss.hpp"

/// What the loss operators share behind their APIs.
namespace tessera::loss {

/// A row of forward_partial as implementations write it, in words of 4 bytes: a Partial, but that
/// argmax is a column of the call. In the order of cl_kernels/common/info.cl.
struct PartialWords {
  float max, sum, label_logit, class_logit, class_sum, argmax_value;
  std::int32_t argmax;
  float exp_logit, target_logit, target_sum, weighted_logit, weighted_sum;
};

/// Columns that an i32 numbers.
constexpr std::int64_t most_i32_columns = std::int64_t{1} << 31;

/// The loss half of a validated request. Views keep the caller's leading axes (`leading`), whose
/// flat row-major index is the row 0 .. b-1; every view given here has exactly these leading axes.
struct LossRequest {
  Pass pass = Pass::forward;
  Dims leading{};            ///< leading axes of x or logits; rank 0: a single row, b = 1
  std::int64_t b = 0;        ///< rows
  std::int64_t v = 0;        ///< columns of this call (the shard's)
  std::int64_t v_total = 0;  ///< columns of the whole vocabulary; == v without shards
  View labels{};             ///< [leading]; not given where soft targets are
  View target_indices{};     ///< [leading, k], with target_probs
  View target_probs{};       ///< [leading, k]
  View targets{};            ///< [leading, v_total]
  /// [b], the sum of q c of each row of `targets`, where those and c are in host memory: checked,
  /// they are not read for it again. Shared: a device may read it when a copy of this is gone.
  std::shared_ptr<const std::vector<float>> target_weights{};
  std::int64_t k = 0;   ///< pairs of a row
  View weight{};        ///< [leading]
  View class_weight{};  ///< [v_total]; column j of this call is entry vocab_offset + j
  View dloss{};         ///< () or [leading]; empty: 1
  View dlse{};          ///< [leading]; empty: 0
  View lse{};           ///< [leading]; empty when statistics are given
  View statistics{};    ///< [leading, 2]
  Outputs outputs{};
  /// forward_partial only: B rows of PartialWords, as [b, words].
  MutableView partial{};
  LossOptions options{};
  bool is_shard = false;    ///< vocab_size_total was given
  float nll_weight = 1.0f;  ///< 1 - alpha: what an operator with more terms multiplies nll by
  bool has_terms = false;   ///< rows have such terms (StreamingRows::terms)

  bool wants_values() const noexcept { return pass != Pass::backward; }
  bool has_targets() const noexcept { return labels || has_soft_targets(); }
  bool has_soft_targets() const noexcept { return targets || target_indices; }
};

}  // namespace tessera::loss
