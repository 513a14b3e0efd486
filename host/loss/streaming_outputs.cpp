// SPDX-License-Identifier: Apache-2.0
// From the sums of rows to the outputs of a loss.
#include <algorithm>
#include <cmath>
#include <limits>

#include "host/loss/streaming_rows.hpp"

namespace tessera::loss {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

/// A term whose coefficient is 0 is absent: 0 * Inf does not spoil the loss.
double term(double coefficient, double value) {
  return coefficient == 0.0 ? 0.0 : coefficient * value;
}

/// One element per row of a view with the leading axes; nothing happens where it is not given.
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
    arguments::store_int(view_.host_data(), view_.dtype(), offsets_(row), value);
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
  explicit Writers(const LossRequest::OutputViews& out)
      : loss(out.loss),
        lse(out.lse),
        argmax(out.argmax),
        label_logprob(out.label_logprob),
        entropy(out.entropy),
        z_loss(out.z_loss),
        statistics(out.statistics, out.statistics.rank() - 1) {}
  /// Of a row that is ignored, or whose target is none: `value` in all but loss and argmax.
  void put_all(std::int64_t row, double value) const {
    for (const auto* writer : {&lse, &label_logprob, &entropy, &z_loss}) writer->put(row, value);
    argmax.put_int(row, -1);
    statistics.put_pair(row, value == 0.0 ? -infinity : static_cast<float>(value),
                        static_cast<float>(value));
  }
  Writer loss, lse, argmax, label_logprob, entropy, z_loss, statistics;
};

template <class Body>
void StreamingRows::for_each_pair(std::int64_t index, const Body& body) const {
  const auto& s = tables_.sums[index];
  const double log_sum = std::log(s.sum);
  const auto distance = [&](float logit) {
    return (static_cast<double>(s.max) - static_cast<double>(logit)) + log_sum;
  };
  if (request_.labels) body(1.0, tables_.target_weights[index], distance(s.label_logit));
  for (std::int64_t i = index * request_.k; i < (index + 1) * request_.k; ++i) {
    body(static_cast<double>(tables_.pair_probs[i]), tables_.pair_weights[i],
         distance(tables_.pair_logits[i]));
  }
}

double StreamingRows::row_loss(std::int64_t index) const {
  const auto& s = tables_.sums[index];
  if (index >= labelled_ || s.max == -infinity) return nan_value;
  const auto& options = request_.options;
  const double eps = static_cast<double>(options.label_smoothing);
  const double log_sum = std::log(s.sum);
  double nll = 0.0;
  for_each_pair(index, [&](double, double weighted, double distance) {
    nll += term((1.0 - eps) * weighted, distance);
  });
  // Of dense targets these are the sums of c t.
  const double columns = request_.targets ? 1.0 : eps / static_cast<double>(request_.v_total);
  if (request_.targets || eps != 0.0) nll += columns * (s.class_sum * log_sum - s.class_logit);
  if (tables_.terms != nullptr) {
    nll = term(static_cast<double>(request_.nll_weight), nll) + tables_.terms[index];
  }
  const double lse = static_cast<double>(s.max) + log_sum;
  return static_cast<double>(weight(tables_.rows[index])) *
         (nll + static_cast<double>(options.logsumexp_weight) * lse * lse);
}

double StreamingRows::label_logprob(std::int64_t index) const {
  const auto& s = tables_.sums[index];
  if (index >= labelled_) return nan_value;
  // NaN where the row has no distribution, whatever its target.
  double result = 0.0 * streaming::log_sum_exp(static_cast<double>(s.max), s.sum);
  for_each_pair(index, [&](double q, double, double distance) { result -= term(q, distance); });
  if (!request_.targets) return result;
  const bool own = target_terms();
  const double total = own ? s.target_sum : s.class_sum;
  return result - (total * std::log(s.sum) - (own ? s.target_logit : s.class_logit));
}

void StreamingRows::write_row(std::int64_t index, const Writers& out) const {
  const std::int64_t row = tables_.rows[index];
  if (index >= labelled_) return out.put_all(row, nan_value);
  const auto& s = tables_.sums[index];
  const double max = static_cast<double>(s.max);
  const double log_sum = std::log(s.sum);
  const double lse = streaming::log_sum_exp(max, s.sum);
  const double lambda = static_cast<double>(request_.options.logsumexp_weight);
  out.lse.put(row, lse);
  out.label_logprob.put(row, label_logprob(index));
  // H = -sum p log p with log p = (logit - max) - log(sum).
  out.entropy.put(row, log_sum - s.exp_logit / s.sum);
  out.z_loss.put(row, static_cast<double>(weight(row)) * lambda * lse * lse);
  out.argmax.put_int(row, s.argmax);
  out.statistics.put_pair(row, s.max, static_cast<float>(s.sum));
}

void StreamingRows::write_partial(std::int64_t row, const PartialWords& partial) const {
  static_cast<PartialWords*>(request_.partial.host_data())[row] = partial;
}

void StreamingRows::write_partials() const {
  if (counted_ < request_.b) {
    // An ignored row has the statistics of no columns at all.
    PartialWords none{};
    none.max = none.label_logit = none.argmax_value = -infinity;
    none.argmax = -1;
    for (std::int64_t row = 0; row < request_.b; ++row) write_partial(row, none);
  }
  for (std::int64_t i = 0; i < counted_; ++i) {
    streaming::RowSums s = tables_.sums[i];
    const double shift = s.max == -infinity ? 0.0 : static_cast<double>(s.max);
    for (std::int64_t pair = i * request_.k; pair < (i + 1) * request_.k; ++pair) {
      if (tables_.pair_columns[pair] < 0) continue;
      const double q = static_cast<double>(tables_.pair_probs[pair]);
      const double far = static_cast<double>(tables_.pair_logits[pair]) - shift;
      s.target_sum += q;
      s.target_logit += term(q, far);
      s.hit_sum += tables_.pair_weights[pair];
      s.hit_logit += term(tables_.pair_weights[pair], far);
    }
    write_partial(tables_.rows[i], {.max = s.max,
                                    .sum = static_cast<float>(s.sum),
                                    .label_logit = s.label_logit,
                                    .class_logit = static_cast<float>(s.class_logit),
                                    .class_sum = static_cast<float>(s.class_sum),
                                    .argmax_value = s.max,
                                    .argmax = static_cast<std::int32_t>(s.argmax),
                                    .exp_logit = static_cast<float>(s.exp_logit),
                                    .target_logit = static_cast<float>(s.target_logit),
                                    .target_sum = static_cast<float>(s.target_sum),
                                    .weighted_logit = static_cast<float>(s.hit_logit),
                                    .weighted_sum = static_cast<float>(s.hit_sum)});
  }
}

void StreamingRows::write_rows(const MutableView& view,
                               const std::function<double(std::int64_t i)>& value) const {
  if (!view) return;
  const Writer out(view);
  for (std::int64_t row = 0; counted_ < request_.b && row < request_.b; ++row) out.put(row, 0.0);
  for (std::int64_t i = 0; i < counted_; ++i) {
    out.put(tables_.rows[i], i < labelled_ ? value(i) : nan_value);
  }
}

void StreamingRows::write_values() const {
  if (request_.pass == Pass::forward_partial) return write_partials();
  const Writers out(request_.outputs);
  const bool per_row = request_.options.reduction == Reduction::none;
  if (counted_ < request_.b) {
    // Every row first, as if it were ignored; those that are not follow.
    for (std::int64_t row = 0; row < request_.b; ++row) {
      out.put_all(row, 0.0);
      if (per_row) out.loss.put(row, 0.0);
    }
  }
  double total = 0.0;
  for (std::int64_t i = 0; i < counted_; ++i) {
    write_row(i, out);
    const double loss = row_loss(i);
    if (per_row) out.loss.put(tables_.rows[i], loss);
    total += loss;
  }
  if (per_row) return;
  if (request_.options.reduction == Reduction::mean) {
    // A bad label makes the mean NaN whatever it is divided by.
    total = denominator_ != 0.0 ? total / denominator_ : (first_bad_ < 0 ? 0.0 : nan_value);
  }
  out.loss.put(0, total);
}

}  // namespace tessera::loss
