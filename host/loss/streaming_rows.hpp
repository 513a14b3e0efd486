// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/arguments/offsets.hpp"
#include "host/dispatch/completion.hpp"
#include "host/dispatch/host_views.hpp"
#include "host/dispatch/table.hpp"
#include "host/loss/request.hpp"
#include "host/loss/targets.hpp"
#include "host/operators/streaming.hpp"
#include "reference/streaming/rows.hpp"

/// What the `eigen` implementations of the loss operators share: the per-token half of a request,
/// and scratch memory.
namespace tessera::loss {

using operators::dense_f32;
using operators::dense_f32_bytes;
using operators::environment;
using operators::streaming_type;
using operators::throw_workspace_too_small;
using operators::workspace_limit;

/// Rows without those that are ignored: the labelled ones in row order, then those whose label is
/// out of range.
class StreamingRows {
 public:
  static std::int64_t bytes(const LossRequest& request);
  /// Reads labels, weights and cotangents of `request` (host views).
  StreamingRows(const LossRequest& request, streaming::Arena& arena);

  std::int64_t counted() const noexcept { return counted_; }
  std::int64_t labelled() const noexcept { return labelled_; }
  const std::int64_t* rows() const noexcept { return tables_.rows; }  ///< [counted] flat rows
  /// [counted] column here or -1
  const std::int64_t* labels() const noexcept { return tables_.labels; }
  streaming::RowSums* sums() const noexcept { return tables_.sums; }  ///< [counted]
  /// [counted], 0 until the operator writes them: what a row's loss has besides nll and z-loss,
  /// before its weight. nullptr: it has nothing else.
  double* terms() const noexcept { return tables_.terms; }
  /// Writes one number a row, `value(i)` of the i-th that counts, where the view is given: 0 in
  /// rows that are ignored, NaN in those whose target is none.
  void write_rows(const MutableView& view,
                  const std::function<double(std::int64_t i)>& value) const;
  const streaming::Cotangent* cotangents() const noexcept { return tables_.cotangents; }
  const float* class_weight() const noexcept { return class_weight_; }  ///< [v] or nullptr

  // What the request needs of the sums.
  static bool class_terms(const LossRequest& request) noexcept;
  static bool entropy(const LossRequest& request) noexcept;
  static bool argmax(const LossRequest& request) noexcept;
  static streaming::TargetForm form(const LossRequest& request) noexcept;
  bool class_terms() const noexcept { return class_terms(request_); }
  bool entropy() const noexcept { return entropy(request_); }
  bool argmax() const noexcept { return argmax(request_); }

  /// The rows' half of a streaming problem.
  void describe(streaming::LossProblem& problem) const;

  /// Element offsets of the counted rows of a view with the request's leading axes.
  std::int64_t* offsets(const View& view, streaming::Arena& arena) const;
  static std::int64_t offsets_bytes(const LossRequest& request);

  /// Gives the rows of `view` [leading, n] that no gradient reaches their values: 0 where the row
  /// is ignored (nothing with `accumulate`), NaN where its label is out of range.
  void fill_other_rows(const MutableView& view, bool accumulate,
                       const streaming::Environment& environment) const;
  /// Writes every output that is given, from the sums.
  void write_values() const;
  /// A finished call; waiting for it throws for the first label out of range.
  std::unique_ptr<Completion::State> completion() const;

 private:
  struct Writers;
  enum class State : std::uint8_t { counts, ignored, bad };
  /// By the place of a row among those that are kept, but for `states`.
  struct Tables {
    std::int64_t* rows = nullptr;
    std::int64_t* labels = nullptr;
    State* states = nullptr;           ///< of every row
    double* target_weights = nullptr;  ///< sum of q c
    streaming::RowSums* sums = nullptr;
    streaming::Cotangent* cotangents = nullptr;
    double* terms = nullptr;
    std::int64_t* target_offsets = nullptr;  ///< dense targets
    // Pairs, k a row.
    std::int64_t* pair_columns = nullptr;  ///< columns here or -1
    float* pair_probs = nullptr;           ///< q
    double* pair_weights = nullptr;        ///< q c
    float* pair_logits = nullptr;
    float* pair_hits = nullptr;
  };
  static Tables lay_out(const LossRequest& request, streaming::Arena& arena);

  float weight(std::int64_t row) const;
  void scan_targets();
  void keep(std::int64_t row, double target_weight);
  bool target_terms() const noexcept;
  bool hit_terms() const noexcept;
  /// Calls `body(q, q c, lse - logit)` for the label or the pairs of a kept row.
  template <class Body>
  void for_each_pair(std::int64_t index, const Body& body) const;
  double label_logprob(std::int64_t index) const;
  void load_statistics();
  void load_cotangents();
  double row_loss(std::int64_t index) const;
  void write_row(std::int64_t index, const Writers& writers) const;
  void write_partials() const;
  void write_partial(std::int64_t row, const PartialWords& partial) const;

  const LossRequest& request_;
  Targets targets_;
  arguments::RowOffsets weight_offsets_;
  Tables tables_;
  std::int64_t counted_ = 0;
  std::int64_t labelled_ = 0;
  std::int64_t first_bad_ = -1;
  double denominator_ = 0.0;  ///< of the mean
  double class_total_ = 0.0;  ///< over the whole vocabulary
  const float* class_weight_ = nullptr;
};

}  // namespace tessera::loss
