// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "host/operators/request.hpp"
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

/// The inputs that a loss may have.
enum class LossInput {
  labels,
  weight,
  class_weight,
  dloss,
  dlse,
  lse,
  statistics,
  target_indices,
  target_probs,
  targets
};

/// The places of what every loss has: its inputs come after the operator's own, its outputs before
/// them.
class LossPlaces {
 public:
  explicit LossPlaces(const operators::Description& op);
  /// How many inputs the operator itself has; they come first.
  std::size_t own() const noexcept { return own_; }
  /// The place of one; that of no input where the operator lacks it.
  std::size_t operator[](LossInput input) const noexcept {
    return places_[static_cast<std::size_t>(input)];
  }
  /// The options of every loss; nothing of their `wants`, which the call has.
  LossOptions options_of(const operators::Call& call) const;

 private:
  std::size_t own_ = 0;
  std::size_t options_ = 0;
  std::array<std::size_t, 10> places_{};
};

/// What the checks find out about a call.
struct LossFacts {
  Dims leading{};            ///< leading axes of x or logits; rank 0: a single row, b = 1
  std::int64_t b = 0;        ///< rows
  std::int64_t v = 0;        ///< columns of this call (the shard's)
  std::int64_t v_total = 0;  ///< columns of the whole vocabulary; == v without shards
  std::int64_t k = 0;        ///< pairs of a row
  /// [b], the sum of q c of each row of `targets`, where those and c are in host memory: checked,
  /// they are not read for it again. Shared: a device may read it when a copy of this is gone.
  std::shared_ptr<const std::vector<float>> target_weights{};
  LossOptions options{};
  bool is_shard = false;    ///< vocab_size_total was given
  float nll_weight = 1.0f;  ///< 1 - alpha: what an operator with more terms multiplies nll by
  bool has_terms = false;   ///< rows have such terms (StreamingRows::terms)
};

/// A validated call of a loss operator, and names for the views of the call that every loss has.
/// They keep the caller's leading axes (`leading`), whose flat row-major index is the row 0 .. b-1.
struct LossRequest : operators::Request, LossFacts {
  LossRequest(const LossPlaces& places, operators::Call&& given)
      : operators::Request(std::move(given)), places_(&places) {
    rows_ = operators::Values<MutableView, 2>(2);
  }
  LossRequest(const LossRequest& other)
      : operators::Request(other), LossFacts(other), places_(other.places_) {}
  LossRequest& operator=(const LossRequest&) = delete;
  void copied(const std::function<void(operators::Request&)>& use) const override {
    LossRequest copy = *this;
    use(copy);
  }

 private:
  const LossPlaces* places_;
  View absent_{};  ///< stands for an input that the operator lacks
  const View& view_of(LossInput input) const noexcept {
    const std::size_t at = (*places_)[input];
    return at < call.inputs.size() ? call.inputs[at] : absent_;
  }

 public:
  const Pass& pass = call.pass;
  const View& labels = view_of(LossInput::labels);  ///< [leading]; not given where soft targets are
  const View& target_indices = view_of(LossInput::target_indices);  ///< [leading, k], with ...
  const View& target_probs = view_of(LossInput::target_probs);      ///< ... [leading, k]
  const View& targets = view_of(LossInput::targets);                ///< [leading, v_total]
  const View& weight = view_of(LossInput::weight);                  ///< [leading]
  /// [v_total]; column j of this call is entry vocab_offset + j.
  const View& class_weight = view_of(LossInput::class_weight);
  const View& dloss = view_of(LossInput::dloss);  ///< () or [leading]; empty: 1
  const View& dlse = view_of(LossInput::dlse);    ///< [leading]; empty: 0
  const View& lse = view_of(LossInput::lse);      ///< [leading]; empty when statistics are given
  const View& statistics = view_of(LossInput::statistics);  ///< [leading, 2]
  /// In the order of `loss_outputs`, which are an operator's first.
  struct OutputViews {
    const MutableView &loss, &lse, &argmax, &label_logprob, &entropy, &z_loss, &statistics;
  } outputs = {call.outputs[0], call.outputs[1], call.outputs[2], call.outputs[3],
               call.outputs[4], call.outputs[5], call.outputs[6]};
  MutableView& partial = rows_[0];      ///< forward_partial: B rows of PartialWords, [b, words]
  MutableView& own_partial = rows_[1];  ///< the same of what rows have besides; empty: nothing

  const LossPlaces& places() const noexcept { return *places_; }
  bool wants_values() const noexcept { return pass != Pass::backward; }
  bool has_targets() const noexcept { return labels || has_soft_targets(); }
  bool has_soft_targets() const noexcept { return targets || target_indices; }
};

inline const LossRequest& loss_request(const dispatch::Request& request) {
  return static_cast<const LossRequest&>(request);
}

}  // namespace tessera::loss
