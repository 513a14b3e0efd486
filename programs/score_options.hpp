// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/loss.hpp"

namespace tessera::programs {

/// What a run of tessera-score does.
enum class ScoreMode {
  forward,         ///< the loss and the per-token outputs
  value_and_grad,  ///< the same and gradients
  backward,        ///< gradients alone, from merged statistics (--statistics)
  shard,           ///< the partial statistics of one shard
  combine,         ///< merges shards into the ordinary outputs
};

/// The command line of tessera-score. Texts are empty, optionals unset, where an option was not
/// given.
struct ScoreOptions {
  std::string x, w, logits, labels, out;
  std::string bias, weight, class_weight, dloss, dlse;
  std::string statistics;
  std::vector<std::string> combine;
  std::optional<bool> w_is_vh;
  std::optional<float> logsumexp_weight, logit_scale, logit_soft_cap, label_smoothing;
  std::optional<std::int64_t> ignore_index, vocab_offset, vocab_size_total;
  Reduction reduction = Reduction::mean;
  bool grad = false;
  bool bf16_bits = false;
  std::string grad_dtype;  ///< "f32", "bf16", "f16" or "same"
  std::vector<std::string> implementation;
  std::string device;
  std::vector<std::int64_t> block_sizes;
  std::optional<std::int64_t> workspace_bytes;

  bool uses_logits() const { return !logits.empty(); }
  ScoreMode mode() const;
  LossOptions loss_options() const;
};

/// Declares the options on `app`; parsing fills `options`.
void add_score_options(CLI::App& app, ScoreOptions& options);

/// Throws `Error invalid_argument` for options that do not go together.
void check_score_options(const CLI::App& app, const ScoreOptions& options);

}  // namespace tessera::programs
