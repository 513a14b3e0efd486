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
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

/// A term whose coefficient is 0 is absent: 0 * Inf does not spoil the loss.
double term(double coefficient, double value) {
  return coefficient == 0.0 ? 0.0 : coefficient * value;
}

/// One element per row of a view with the leading axes, which may not be given.
class PerRow {
 public:
  explicit PerRow(const View& view) : view_(view), offsets_(view, view.rank()) {}
  explicit operator bool() const { return static_cast<bool>(view_); }
  float get(std::int64_t row) const {
    return arguments::load_f32(view_.host_data(), view_.dtype(), offsets_(row));
  }
  std::int64_t get_int(std::int64_t row) const {
    return arguments::load_int(view_.host_data(), view_.dtype(), offsets_(row));
  }

 private:
  const View& view_;
  arguments::RowOffsets offsets_;
};

/// The same to write to; nothing happens where the view is not given.
class Writer {
 public:
  explicit Writer(const MutableView& view) : Writer(view, view.rank()) {}
  Writer(const MutableView& view, int axes)
      : view_(view), offsets_(view, std::min(axes, view.rank())) {}
  void put(std::int64_t row, double value) const {
    if (!view_) return;
    arguments::store_f32(view_.host_data(), view_.dtype(), offsets_(row),
                         static_cast<float>(value));
  }
  void put_int(std::int64_t row, std::int64_t value) const {
    if (!view_) return;
    static_cast<std::int32_t*>(view_.host_data())[offsets_(row)] = static_cast<std::int32_t>(value);
  }
  void put_pair(std::int64_t row, float first, float second) const {
    if (!view_) return;
    const std::int64_t at = offsets_(row);
    arguments::store_f32(view_.host_data(), view_.dtype(), at, first);
    arguments::store_f32(view_.host_data(), view_.dtype(), at + view_.strides().back(), second);
  }

 private:
  const MutableView& view_;
  arguments::RowOffsets offsets_;
};

}  // namespace

struct StreamingRows::Writers {
  explicit Writers(const Outputs& out)
      : loss(out.loss),
        lse(out.lse),
        argmax(out.argmax),
        label_logprob(out.label_logprob),
        entropy(out.entropy),
        z_loss(out.z_loss),
        statistics(out.statistics, out.statistics.rank() - 1) {}
  Writer loss, lse, argmax, label_logprob, entropy, z_loss, statistics;
};

std::int64_t StreamingRows::bytes(const LossRequest& request) {
  streaming::Arena counter(nullptr);
  counter.take<std::int64_t>(request.b);
  counter.take<std::int64_t>(request.b);
  counter.take<std::int64_t>(request.b);
  counter.take<streaming::RowSums>(request.b);
  if (has_gradients(request.pass)) counter.take<streaming::Cotangent>(request.b);
  return counter.used() + dense_f32_bytes(request.class_weight, request.v);
}

StreamingRows::StreamingRows(const LossRequest& request, streaming::Arena& arena)
    : request_(request), weight_offsets_(request.weight, request.weight.rank()) {
  rows_ = arena.take<std::int64_t>(request.b);
  labels_ = arena.take<std::int64_t>(request.b);
  global_labels_ = arena.take<std::int64_t>(request.b);
  sums_ = arena.take<streaming::RowSums>(request.b);
  if (has_gradients(request.pass)) cotangents_ = arena.take<streaming::Cotangent>(request.b);
  class_weight_ = dense_f32(request.class_weight, request.options.vocab_offset, request.v, arena);
  if (request.class_weight) {
    for (std::int64_t c = 0; c < request.v_total; ++c) {
      class_total_ += static_cast<double>(class_weight_of(c));
    }
  } else {
    class_total_ = static_cast<double>(request.v_total);
  }
  scan_labels();
  if (request.pass == Pass::backward) load_statistics();
  if (has_gradients(request.pass)) load_cotangents();
}

float StreamingRows::weight(std::int64_t row) const {
  const View& view = request_.weight;
  return view ? arguments::load_f32(view.host_data(), view.dtype(), weight_offsets_(row)) : 1.0f;
}

float StreamingRows::class_weight_of(std::int64_t label) const {
  const View& view = request_.class_weight;
  return view ? arguments::load_f32(view.host_data(), view.dtype(), label * view.strides()[0])
              : 1.0f;
}

void StreamingRows::scan_labels() {
  const PerRow labels(request_.labels);
  const auto bad = [&](std::int64_t label) { return label < 0 || label >= request_.v_total; };
  const auto keep = [&](std::int64_t row, std::int64_t label) {
    const std::int64_t local = label - request_.options.vocab_offset;
    rows_[counted_] = row;
    global_labels_[counted_] = label;
    labels_[counted_] = bad(label) || local < 0 || local >= request_.v ? -1 : local;
    sums_[counted_] = {};
    ++counted_;
  };
  std::int64_t bad_rows = 0;
  for (std::int64_t row = 0; row < request_.b; ++row) {
    const std::int64_t label = labels.get_int(row);
    if (label == request_.options.ignore_index) continue;
    if (bad(label)) {
      if (bad_rows++ == 0) first_bad_ = row;
      continue;
    }
    keep(row, label);
    denominator_ += static_cast<double>(weight(row)) * static_cast<double>(class_weight_of(label));
  }
  labelled_ = counted_;
  if (bad_rows == 0) return;
  for (std::int64_t row = first_bad_; row < request_.b; ++row) {
    const std::int64_t label = labels.get_int(row);
    if (label != request_.options.ignore_index && bad(label)) keep(row, label);
  }
}

void StreamingRows::load_statistics() {
  if (request_.statistics) {
    const View& view = request_.statistics;
    const arguments::RowOffsets offsets(view, view.rank() - 1);
    for (std::int64_t i = 0; i < labelled_; ++i) {
      const std::int64_t at = offsets(rows_[i]);
      sums_[i].max = arguments::load_f32(view.host_data(), view.dtype(), at);
      sums_[i].sum = static_cast<double>(
          arguments::load_f32(view.host_data(), view.dtype(), at + view.strides().back()));
    }
    return;
  }
  const PerRow lse(request_.lse);
  for (std::int64_t i = 0; i < labelled_; ++i) {
    sums_[i].max = lse.get(rows_[i]);
    sums_[i].sum = 1.0;
  }
}

void StreamingRows::load_cotangents() {
  const auto& options = request_.options;
  const double eps = static_cast<double>(options.label_smoothing);
  const double smooth = eps / static_cast<double>(request_.v_total);
  const bool mean = options.reduction == Reduction::mean;
  const PerRow dloss(request_.dloss);
  const PerRow dlse(request_.dlse);
  for (std::int64_t i = 0; i < labelled_; ++i) {
    const std::int64_t row = rows_[i];
    double from_loss = request_.dloss ? static_cast<double>(dloss.get(row)) : 1.0;
    if (mean) from_loss = denominator_ == 0.0 ? 0.0 : from_loss / denominator_;
    const double c_label = static_cast<double>(class_weight_of(global_labels_[i]));
    auto& c = cotangents_[i];
    c.loss = static_cast<double>(weight(row)) * from_loss;
    c.dlse = request_.dlse ? static_cast<double>(dlse.get(row)) : 0.0;
    c.a = (1.0 - eps) * c_label + smooth * class_total_;
    c.hit = (1.0 - eps) * c_label;
    c.smooth = smooth;
  }
}

bool StreamingRows::class_terms(const LossRequest& request) noexcept {
  return request.pass == Pass::forward_partial || request.options.label_smoothing != 0.0f;
}
bool StreamingRows::entropy(const LossRequest& request) noexcept {
  return request.pass == Pass::forward_partial || static_cast<bool>(request.outputs.entropy);
}
bool StreamingRows::argmax(const LossRequest& request) noexcept {
  return request.pass == Pass::forward_partial || static_cast<bool>(request.outputs.argmax);
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
  problem.labels = labels_;
  problem.scale = request_.options.logit_scale;
  problem.cap = request_.options.logit_soft_cap;
  problem.class_terms = class_terms();
  problem.entropy = entropy();
  problem.argmax = argmax();
  problem.sums = sums_;
  problem.cotangents = cotangents_;
  problem.logsumexp_weight = static_cast<double>(request_.options.logsumexp_weight);
}

std::int64_t* StreamingRows::offsets(const View& view, streaming::Arena& arena) const {
  auto* result = arena.take<std::int64_t>(request_.b);
  const arguments::RowOffsets offsets(view, request_.leading.rank());
  for (std::int64_t i = 0; i < counted_; ++i) result[i] = offsets(rows_[i]);
  return result;
}

void StreamingRows::fill_other_rows(const MutableView& view, bool accumulate,
                                    const streaming::Environment& environment) const {
  const arguments::RowOffsets offsets(view, request_.leading.rank());
  const PerRow labels(request_.labels);
  const std::int64_t n = view.extents().back();
  const std::int64_t stride = view.strides().back();
  if (labelled_ == request_.b || n == 0) return;
  constexpr std::int64_t rows_per_task = 64;
  environment.parallel_for(
      streaming::ceil_div(request_.b, rows_per_task), [&](std::int64_t task, int) {
        const std::int64_t last = std::min(request_.b, (task + 1) * rows_per_task);
        for (std::int64_t row = task * rows_per_task; row < last; ++row) {
          const std::int64_t label = labels.get_int(row);
          const bool ignored = label == request_.options.ignore_index;
          if (!ignored && label >= 0 && label < request_.v_total) continue;
          if (ignored && accumulate) continue;
          const float value = ignored ? 0.0f : std::numeric_limits<float>::quiet_NaN();
          for (std::int64_t j = 0; j < n; ++j) {
            arguments::store_f32(view.host_data(), view.dtype(), offsets(row) + j * stride, value);
          }
        }
      });
}

// -- Outputs --------------------------------------------------------------------------------------

double StreamingRows::row_loss(std::int64_t index) const {
  const auto& s = sums_[index];
  if (index >= labelled_ || s.max == -infinity) return nan_value;
  const auto& options = request_.options;
  const double max = static_cast<double>(s.max);
  const double eps = static_cast<double>(options.label_smoothing);
  const double log_sum = std::log(s.sum);
  const double c_label = static_cast<double>(class_weight_of(global_labels_[index]));
  double nll = term((1.0 - eps) * c_label, (max - static_cast<double>(s.label_logit)) + log_sum);
  if (eps != 0.0) {
    nll += eps / static_cast<double>(request_.v_total) * (s.class_sum * log_sum - s.class_logit);
  }
  const double lse = max + log_sum;
  return static_cast<double>(weight(rows_[index])) *
         (nll + static_cast<double>(options.logsumexp_weight) * lse * lse);
}

void StreamingRows::write_row(std::int64_t index, const Writers& out) const {
  const auto& s = sums_[index];
  const std::int64_t row = rows_[index];
  const double max = static_cast<double>(s.max);
  const double log_sum = std::log(s.sum);
  const double lse = streaming::log_sum_exp(max, s.sum);
  const double lambda = static_cast<double>(request_.options.logsumexp_weight);
  out.lse.put(row, lse);
  out.label_logprob.put(
      row, index < labelled_ ? -((max - static_cast<double>(s.label_logit)) + log_sum) : nan_value);
  // H = -sum p log p with log p = (logit - max) - log(sum).
  out.entropy.put(row, log_sum - s.exp_logit / s.sum);
  out.z_loss.put(row, static_cast<double>(weight(row)) * lambda * lse * lse);
  out.argmax.put_int(row, s.argmax + request_.options.vocab_offset);
  out.statistics.put_pair(row, s.max, static_cast<float>(s.sum));
}

void StreamingRows::write_partial(std::int64_t row, const float (&words)[8]) const {
  const auto& view = request_.partial;
  auto* target = static_cast<float*>(view.host_data()) + row * view.strides()[0];
  for (std::int64_t word = 0; word < 8; ++word) target[word * view.strides()[1]] = words[word];
}

void StreamingRows::write_partials() const {
  if (counted_ < request_.b) {
    // An ignored row has the statistics of no columns at all.
    const float none = std::bit_cast<float>(std::int32_t{-1});
    for (std::int64_t row = 0; row < request_.b; ++row) {
      write_partial(row, {-infinity, 0.0f, -infinity, 0.0f, 0.0f, -infinity, none, 0.0f});
    }
  }
  for (std::int64_t i = 0; i < counted_; ++i) {
    const auto& s = sums_[i];
    const auto argmax = static_cast<std::int32_t>(s.argmax + request_.options.vocab_offset);
    write_partial(rows_[i], {s.max, static_cast<float>(s.sum), s.label_logit,
                             static_cast<float>(s.class_logit), static_cast<float>(s.class_sum),
                             s.max, std::bit_cast<float>(argmax), static_cast<float>(s.exp_logit)});
  }
}

void StreamingRows::write_values() const {
  if (request_.pass == Pass::forward_partial) return write_partials();
  const Writers out(request_.outputs);
  const bool per_row = request_.options.reduction == Reduction::none;
  if (counted_ < request_.b) {
    // Every row first, as if it were ignored; those that are not follow.
    for (std::int64_t row = 0; row < request_.b; ++row) {
      for (const auto* writer : {&out.lse, &out.label_logprob, &out.entropy, &out.z_loss}) {
        writer->put(row, 0.0);
      }
      if (per_row) out.loss.put(row, 0.0);
      out.argmax.put_int(row, -1);
      out.statistics.put_pair(row, -infinity, 0.0f);
    }
  }
  double total = 0.0;
  for (std::int64_t i = 0; i < counted_; ++i) {
    write_row(i, out);
    const double loss = row_loss(i);
    if (per_row) out.loss.put(rows_[i], loss);
    total += loss;
  }
  if (per_row) return;
  if (request_.options.reduction == Reduction::mean) {
    // A bad label makes the mean NaN whatever it is divided by.
    total = denominator_ != 0.0 ? total / denominator_ : (first_bad_ < 0 ? 0.0 : nan_value);
  }
  out.loss.put(0, total);
}

namespace {

class LabelOutOfRange final : public Completion::State {
 public:
  explicit LabelOutOfRange(std::string message) : message_(std::move(message)) {}
  void wait_once() override { throw Error(ErrorCode::label_out_of_range, message_); }

 private:
  std::string message_;
};

}  // namespace

std::unique_ptr<Completion::State> StreamingRows::completion() const {
  if (first_bad_ < 0) return std::make_unique<Completion::State>();
  std::string where = "labels row " + std::to_string(first_bad_);
  if (request_.leading.rank() > 1) {
    std::string index;
    std::int64_t rest = first_bad_;
    for (int axis = request_.leading.rank() - 1; axis >= 0; --axis) {
      index = std::to_string(rest % request_.leading[axis]) + (index.empty() ? "" : ", ") + index;
      rest /= request_.leading[axis];
    }
    where += " [" + index + "]";
  }
  return std::make_unique<LabelOutOfRange>(
      where + " is " + std::to_string(global_labels_[labelled_]) +
      ", which is neither ignore_index (" + std::to_string(request_.options.ignore_index) +
      ") nor in [0, " + std::to_string(request_.v_total) +
      "); that row's loss and gradient are NaN, correct the label");
}

}  // namespace tessera::loss
