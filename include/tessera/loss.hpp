// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/execution.hpp"
#include "tessera/view.hpp"

/// What every loss operator shares: its options, its per-token outputs, and the merging of shards.
namespace tessera {

/// Which optional results a call without output views returns. The loss always is.
struct Wants {
  bool lse = false;
  bool argmax = false;
  bool label_logprob = false;
  bool entropy = false;
  bool z_loss = false;
  bool statistics = false;
  bool divergence = false;             ///< linear_distillation
  bool target_entropy = false;         ///< linear_distillation
  bool divergence_statistics = false;  ///< linear_distillation
  bool grad_x = true;                  ///< of operators with an x
  bool grad_w = true;                  ///< of operators with a w
  bool grad_bias = true;               ///< of operators with a bias, only where one is given
};

/// What is computed.
struct LossOptions {
  float logsumexp_weight = 0.0f;     ///< weight of the z-loss, lse^2
  float logit_scale = 1.0f;          ///< multiplies x . w + bias
  float logit_soft_cap = 0.0f;       ///< cap * tanh(logit / cap); 0: off
  float label_smoothing = 0.0f;      ///< in [0, 1]
  std::int64_t ignore_index = -100;  ///< rows with this label do not count
  Reduction reduction = Reduction::mean;
  std::int64_t vocab_offset = 0;      ///< first column of this shard in the whole vocabulary
  std::int64_t vocab_size_total = 0;  ///< columns of the whole; 0: this call is the whole
  Wants wants{};
};

/// Output views; those not given are not computed.
struct Outputs {
  MutableView loss{};           ///< () f32 for mean and sum, [...] for none
  MutableView lse{};            ///< [...] f32
  MutableView argmax{};         ///< [...] i32 or i64, -1 for ignored rows
  MutableView label_logprob{};  ///< [...] f32, logit_y - lse, unweighted
  MutableView entropy{};        ///< [...] f32, in nats
  MutableView z_loss{};         ///< [...] f32, weight * logsumexp_weight * lse^2
  MutableView statistics{};     ///< [..., 2] f32: max and sum of exp(logit - max)
};

/// Owned loss outputs; those not asked for are empty.
struct LossResult {
  HostTensor loss{};
  HostTensor lse{};
  HostTensor argmax{};
  HostTensor label_logprob{};
  HostTensor entropy{};
  HostTensor z_loss{};
  HostTensor statistics{};
  Dispatch dispatch{};
};

/// One row of one shard of the vocabulary. Sums are relative to `max`, so nothing cancels.
struct Partial {
  float max = 0.0f;           ///< largest logit of the shard
  float sum = 0.0f;           ///< sum of exp(logit - max)
  float label_logit = 0.0f;   ///< -Inf: the label is in another shard
  float class_logit = 0.0f;   ///< sum of c * (logit - max)
  float class_sum = 0.0f;     ///< sum of c over the shard's columns; rescales class_logit
  float argmax_value = 0.0f;  ///< logit at argmax
  std::int64_t argmax = -1;   ///< global index of the largest logit, lowest on ties
  float exp_logit = 0.0f;     ///< sum of exp(logit - max) * (logit - max)
  // Of soft targets, whose probabilities of the shard's words are q; 0 where rows have labels.
  float target_logit = 0.0f;    ///< sum of q * (logit - max)
  float target_sum = 0.0f;      ///< sum of q
  float weighted_logit = 0.0f;  ///< sum of q * c * (logit - max)
  float weighted_sum = 0.0f;    ///< sum of q * c
};

/// Columns of a vocabulary, from `begin` to before `end`.
struct ColumnRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  friend bool operator==(const ColumnRange&, const ColumnRange&) = default;
};

/// The rows of one shard, or of several merged.
struct PartialResult {
  std::vector<Partial> rows{};  ///< B rows, flat
  Dims extents{};               ///< leading axes of x
  Dispatch dispatch{};          ///< of several shards, `Dispatch::shards` has each one's
  /// Columns of the whole vocabulary, as forward_partial knew it; 0: not known, as where the rows
  /// came from another process and nobody has set it again.
  std::int64_t vocab_size_total = 0;
  /// Those that these rows are of, where the whole is known: ascending, and no column twice.
  std::vector<ColumnRange> ranges{};
};

/// What `combine` reads besides the shards: as in Inputs, for the whole vocabulary. Labels, pairs
/// or a probability for every word: what forward_partial was given.
struct CombineInputs {
  View labels{};
  View weight{};
  View class_weight{};
  View target_indices{};
  View target_probs{};
  View targets{};
};

// -- Shards ---------------------------------------------------------------------------------------

/// Merges two rows of statistics; associative up to rounding.
TESSERA_API Partial merge(const Partial& a, const Partial& b);
/// Merges shards, or merged shards, row by row. Throws `Error invalid_argument` when they differ in
/// shape or in the whole's width, when a column is in two of them, or when none is given.
TESSERA_API PartialResult merge(std::span<const PartialResult> shards);
/// The ordinary outputs, those of `options.wants`, from all shards of a vocabulary; the inputs are
/// host memory. The whole's width is `options.vocab_size_total`, or where that is 0 what the shards
/// say. Throws `Error invalid_argument` when neither says it, when they disagree, when shards are
/// missing or given twice, and as `merge` and `forward` do.
TESSERA_API LossResult combine(std::span<const PartialResult> shards, const CombineInputs& inputs,
                               const LossOptions& options);
/// The same of a single PartialResult, which is the whole: merged, or of a call without shards.
inline LossResult combine(const std::same_as<PartialResult> auto& whole,
                          const CombineInputs& inputs, const LossOptions& options) {
  return combine(std::span<const PartialResult>(&whole, 1), inputs, options);
}

}  // namespace tessera
