// SPDX-License-Identifier: Apache-2.0
#include "host/loss/streaming_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "host/arguments/offsets.hpp"

namespace tessera::loss {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// One element per row of a view with the leading axes, which may not be given.
class PerRow {
 public:
  explicit PerRow(const View& view) : view_(view), offsets_(view, view.rank()) {}
  explicit operator bool() const { return static_cast<bool>(view_); }
  float get(std::int64_t row) const {
    return arguments::load_f32(view_.host_data(), view_.dtype(), offsets_(row));
  }

 private:
  const View& view_;
  arguments::RowOffsets offsets_;
};

}  // namespace

StreamingRows::Tables StreamingRows::lay_out(const LossRequest& r, streaming::Arena& arena) {
  Tables t;
  t.rows = arena.take<std::int64_t>(r.b);
  t.labels = arena.take<std::int64_t>(r.b);
  t.states = arena.take<State>(r.b);
  t.target_weights = arena.take<double>(r.b);
  t.sums = arena.take<streaming::RowSums>(r.b);
  if (has_gradients(r.pass)) t.cotangents = arena.take<streaming::Cotangent>(r.b);
  if (r.has_terms) t.terms = arena.take<double>(r.b);
  if (r.targets) t.target_offsets = arena.take<std::int64_t>(r.b);
  if (r.k == 0) return t;
  t.pair_columns = arena.take<std::int64_t>(r.b * r.k);
  t.pair_probs = arena.take<float>(r.b * r.k);
  t.pair_weights = arena.take<double>(r.b * r.k);
  t.pair_logits = arena.take<float>(r.b * r.k);
  if (has_gradients(r.pass)) t.pair_hits = arena.take<float>(r.b * r.k);
  return t;
}

std::int64_t StreamingRows::bytes(const LossRequest& request) {
  streaming::Arena counter(nullptr);
  lay_out(request, counter);
  return counter.used() + dense_f32_bytes(request.class_weight, request.v);
}

StreamingRows::StreamingRows(const LossRequest& request, streaming::Arena& arena)
    : request_(request),
      targets_(request),
      weight_offsets_(request.weight, request.weight.rank()),
      tables_(lay_out(request, arena)) {
  class_weight_ = dense_f32(request.class_weight, request.options.vocab_offset, request.v, arena);
  if (request.class_weight) {
    for (std::int64_t c = 0; c < request.v_total; ++c) {
      class_total_ += static_cast<double>(targets_.class_weight(c));
    }
  } else {
    class_total_ = static_cast<double>(request.v_total);
  }
  scan_targets();
  if (request.pass == Pass::backward) load_statistics();
  if (has_gradients(request.pass)) load_cotangents();
}

float StreamingRows::weight(std::int64_t row) const {
  const View& view = request_.weight;
  return view ? arguments::load_f32(view.host_data(), view.dtype(), weight_offsets_(row)) : 1.0f;
}

void StreamingRows::scan_targets() {
  std::int64_t bad_rows = 0;
  for (std::int64_t row = 0; row < request_.b; ++row) {
    const auto target = targets_.sums_of(row);
    tables_.states[row] =
        target.ignored ? State::ignored : (target.bad ? State::bad : State::counts);
    if (target.bad && bad_rows++ == 0) first_bad_ = row;
    if (target.ignored || target.bad) continue;
    keep(row, target.weighted);
    denominator_ += static_cast<double>(weight(row)) * targets_.share_of(target);
  }
  labelled_ = counted_;
  if (bad_rows == 0) return;
  for (std::int64_t row = first_bad_; row < request_.b; ++row) {
    if (tables_.states[row] == State::bad) keep(row, 0.0);
  }
}

void StreamingRows::keep(std::int64_t row, double target_weight) {
  const bool bad = tables_.states[row] == State::bad;
  const auto local = [&](std::int64_t column) {
    const std::int64_t here = column - request_.options.vocab_offset;
    return bad || here < 0 || here >= request_.v ? -1 : here;
  };
  const std::int64_t at = counted_++;
  tables_.rows[at] = row;
  tables_.target_weights[at] = target_weight;
  tables_.sums[at] = {};
  if (tables_.terms != nullptr) tables_.terms[at] = 0.0;
  tables_.labels[at] = request_.labels ? local(targets_.label_of(row)) : -1;
  for (std::int64_t pair = 0; pair < request_.k; ++pair) {
    const auto [column, q] = targets_.pair_of(row, pair);
    const bool padding = bad || column == request_.options.ignore_index;
    const std::int64_t i = at * request_.k + pair;
    tables_.pair_columns[i] = padding ? -1 : local(column);
    tables_.pair_probs[i] = padding ? 0.0f : q;
    tables_.pair_weights[i] =
        padding ? 0.0 : static_cast<double>(q) * static_cast<double>(targets_.class_weight(column));
    tables_.pair_logits[i] = -infinity;
  }
}

void StreamingRows::load_statistics() {
  if (request_.statistics) {
    const View& view = request_.statistics;
    const arguments::RowOffsets offsets(view, view.rank() - 1);
    for (std::int64_t i = 0; i < labelled_; ++i) {
      const std::int64_t at = offsets(tables_.rows[i]);
      tables_.sums[i].max = arguments::load_f32(view.host_data(), view.dtype(), at);
      tables_.sums[i].sum = static_cast<double>(
          arguments::load_f32(view.host_data(), view.dtype(), at + view.strides().back()));
    }
    return;
  }
  const PerRow lse(request_.lse);
  for (std::int64_t i = 0; i < labelled_; ++i) {
    tables_.sums[i].max = lse.get(tables_.rows[i]);
    tables_.sums[i].sum = 1.0;
  }
}

void StreamingRows::load_cotangents() {
  const auto& options = request_.options;
  const double eps = static_cast<double>(options.label_smoothing);
  const double smooth = eps / static_cast<double>(request_.v_total);
  const bool mean = options.reduction == Reduction::mean;
  const double share = static_cast<double>(request_.nll_weight);
  const PerRow dloss(request_.dloss);
  const PerRow dlse(request_.dlse);
  for (std::int64_t i = 0; i < labelled_; ++i) {
    const std::int64_t row = tables_.rows[i];
    double from_loss = request_.dloss ? static_cast<double>(dloss.get(row)) : 1.0;
    if (mean) from_loss = denominator_ == 0.0 ? 0.0 : from_loss / denominator_;
    const double target_weight = tables_.target_weights[i];
    auto& c = tables_.cotangents[i];
    c.loss = static_cast<double>(weight(row)) * from_loss;
    c.dlse = request_.dlse ? static_cast<double>(dlse.get(row)) : 0.0;
    c.a = share * ((1.0 - eps) * target_weight + smooth * class_total_);
    c.hit = share * ((1.0 - eps) * target_weight);
    c.smooth = share * (request_.targets ? 1.0 : smooth);  // of the terms c t, or c
    for (std::int64_t pair = i * request_.k; pair < (i + 1) * request_.k; ++pair) {
      tables_.pair_hits[pair] =
          static_cast<float>(c.loss * share * ((1.0 - eps) * tables_.pair_weights[pair]));
    }
  }
}

bool StreamingRows::class_terms(const LossRequest& request) noexcept {
  return request.pass == Pass::forward_partial || request.options.label_smoothing != 0.0f ||
         request.targets;
}
bool StreamingRows::entropy(const LossRequest& request) noexcept {
  return request.pass == Pass::forward_partial || static_cast<bool>(request.outputs.entropy);
}
bool StreamingRows::argmax(const LossRequest& request) noexcept {
  return request.pass == Pass::forward_partial || static_cast<bool>(request.outputs.argmax);
}

bool StreamingRows::target_terms() const noexcept {
  return hit_terms() || (request_.targets && request_.outputs.label_logprob &&
                         (request_.class_weight || request_.options.label_smoothing != 0.0f));
}
bool StreamingRows::hit_terms() const noexcept {
  return request_.targets && request_.pass == Pass::forward_partial;
}
streaming::TargetForm StreamingRows::form(const LossRequest& request) noexcept {
  return {request.k, static_cast<bool>(request.targets)};
}

std::int64_t StreamingRows::offsets_bytes(const LossRequest& request) {
  streaming::Arena counter(nullptr);
  counter.take<std::int64_t>(request.b);
  return counter.used();
}

void StreamingRows::describe(streaming::LossProblem& problem) const {
  problem.rows = counted_;
  problem.gradient_rows = labelled_;
  problem.v = request_.v;
  problem.class_weight = class_weight_;
  problem.labels = tables_.labels;
  problem.form = form(request_);
  problem.pair_columns = tables_.pair_columns;
  problem.pair_logits = tables_.pair_logits;
  problem.pair_hits = tables_.pair_hits;
  if (request_.targets) {
    const View& view = request_.targets;
    const arguments::RowOffsets offsets(view, request_.leading.rank());
    for (std::int64_t i = 0; i < counted_; ++i) {
      tables_.target_offsets[i] =
          offsets(tables_.rows[i]) + request_.options.vocab_offset * view.strides().back();
    }
    problem.targets = view.host_data();
    problem.target_type = streaming_type(view.dtype());
    problem.target_offsets = tables_.target_offsets;
    problem.target_stride = view.strides().back();
    problem.keep = 1.0f - request_.options.label_smoothing;
    problem.smooth = request_.options.label_smoothing / static_cast<float>(request_.v_total);
    problem.target_terms = target_terms();
    problem.hit_terms = hit_terms();
  }
  problem.scale = request_.options.logit_scale;
  problem.cap = request_.options.logit_soft_cap;
  problem.class_terms = class_terms();
  problem.entropy = entropy();
  problem.argmax = argmax();
  problem.sums = tables_.sums;
  problem.cotangents = tables_.cotangents;
  problem.logsumexp_weight = static_cast<double>(request_.options.logsumexp_weight);
}

std::int64_t* StreamingRows::offsets(const View& view, streaming::Arena& arena) const {
  auto* result = arena.take<std::int64_t>(request_.b);
  const arguments::RowOffsets offsets(view, request_.leading.rank());
  for (std::int64_t i = 0; i < counted_; ++i) result[i] = offsets(tables_.rows[i]);
  return result;
}

void StreamingRows::fill_other_rows(const MutableView& view, bool accumulate,
                                    const streaming::Environment& environment) const {
  const arguments::RowOffsets offsets(view, request_.leading.rank());
  const std::int64_t n = view.extents().back();
  const std::int64_t stride = view.strides().back();
  if (labelled_ == request_.b || n == 0) return;
  constexpr std::int64_t rows_per_task = 64;
  environment.parallel_for(
      "other rows", streaming::ceil_div(request_.b, rows_per_task), [&](std::int64_t task, int) {
        const std::int64_t last = std::min(request_.b, (task + 1) * rows_per_task);
        for (std::int64_t row = task * rows_per_task; row < last; ++row) {
          const bool ignored = tables_.states[row] == State::ignored;
          if (tables_.states[row] == State::counts || (ignored && accumulate)) continue;
          const float value = ignored ? 0.0f : std::numeric_limits<float>::quiet_NaN();
          for (std::int64_t j = 0; j < n; ++j) {
            arguments::store_f32(view.host_data(), view.dtype(), offsets(row) + j * stride, value);
          }
        }
      });
}

std::unique_ptr<Completion::State> StreamingRows::completion() const {
  return finished(first_bad_ < 0 ? std::string() : targets_.why_bad(first_bad_));
}

}  // namespace tessera::loss
