// SPDX-License-Identifier: Apache-2.0
#include "host/loss/targets.hpp"

#include <fmt/format.h>

#include "host/loss/validate.hpp"

namespace tessera::loss {

namespace {

arguments::RowOffsets offsets_of(const View& view, int axes) {
  return view ? arguments::RowOffsets(view, axes) : arguments::RowOffsets();
}

}  // namespace

Targets::Targets(const LossRequest& request)
    : request_(request),
      labels_(offsets_of(request.labels, request.leading.rank())),
      indices_(offsets_of(request.target_indices, request.leading.rank())),
      probs_(offsets_of(request.target_probs, request.leading.rank())),
      targets_(offsets_of(request.targets, request.leading.rank())) {}

std::pair<std::int64_t, float> Targets::pair_of(std::int64_t row, std::int64_t pair) const {
  const View& indices = request_.target_indices;
  const View& probs = request_.target_probs;
  return {arguments::load_int(indices.host_data(), indices.dtype(),
                              indices_(row) + pair * indices.strides().back()),
          number(probs, probs_(row) + pair * probs.strides().back())};
}

std::int64_t Targets::label_of(std::int64_t row) const {
  return arguments::load_int(request_.labels.host_data(), request_.labels.dtype(), labels_(row));
}

float Targets::class_weight(std::int64_t column) const {
  const View& view = request_.class_weight;
  return view ? number(view, column * view.strides()[0]) : 1.0f;
}

namespace {

/// The sum of n numbers, and whether one is negative or NaN. Several sums side by side: a row is as
/// long as the vocabulary.
bool add_up(const float* q, std::int64_t n, double& total) {
  constexpr std::int64_t width = 16;
  double sums[width] = {};
  int bad = 0;
  std::int64_t j = 0;
  for (; j + width <= n; j += width) {
    for (std::int64_t i = 0; i < width; ++i) {
      sums[i] += static_cast<double>(q[j + i]);
      bad |= q[j + i] >= 0.0f ? 0 : 1;  // a NaN is not
    }
  }
  for (; j < n; ++j) {
    sums[0] += static_cast<double>(q[j]);
    bad |= q[j] >= 0.0f ? 0 : 1;
  }
  total = 0.0;
  for (const double sum : sums) total += sum;
  return bad != 0;
}

}  // namespace

Targets::Sums Targets::sums_of(std::int64_t row) const {
  Sums sums;
  const View& dense = request_.targets;
  if (dense && dense.dtype() == DType::f32 && dense.strides().back() == 1 &&
      !request_.class_weight) {
    const auto* q = static_cast<const float*>(dense.host_data()) + targets_(row);
    sums.bad = add_up(q, request_.v_total, sums.total);
    sums.weighted = sums.total;
    return sums;
  }
  sums.ignored = request_.has_targets() && !request_.targets;
  for_each(row, [&](std::int64_t column, float q) {
    sums.ignored = false;
    // Written so that a NaN is bad.
    if (!is_word(column) || !(q >= 0.0f)) {
      sums.bad = true;
      return;
    }
    sums.total += static_cast<double>(q);
    sums.weighted += static_cast<double>(q) * static_cast<double>(class_weight(column));
  });
  return sums;
}

double Targets::share_of(const Sums& sums) const {
  if (request_.targets || sums.total == 0.0) return 1.0;
  return sums.weighted / sums.total;
}

std::string Targets::why_bad(std::int64_t row) const {
  const std::string where = describe_row(row, request_.leading);
  const std::string limits = fmt::format("the vocabulary is 0 to {}, ignore_index is {}",
                                         request_.v_total - 1, request_.options.ignore_index);
  if (request_.labels) return fmt::format("labels: row {} is {}; {}", where, label_of(row), limits);
  std::string text;
  for_each(row, [&](std::int64_t column, float q) {
    if (!text.empty()) return;
    if (!is_word(column)) {
      text = fmt::format("target_indices: row {} has {}; {}", where, column, limits);
    } else if (!(q >= 0.0f)) {
      text = fmt::format("{}: row {} has {} for word {}; the least probability is 0",
                         request_.targets ? "targets" : "target_probs", where, q, column);
    }
  });
  return text;
}

namespace {

class BadTarget final : public Completion::State {
 public:
  explicit BadTarget(std::string message) : message_(std::move(message)) {}
  void wait_once() override { throw Error(ErrorCode::label_out_of_range, message_); }

 private:
  std::string message_;
};

}  // namespace

bool is_known(const LossRequest& r) {
  for (const View* view : {&r.labels, &r.target_indices, &r.target_probs, &r.targets}) {
    if (*view && (view->is_device() || view->host_data() == nullptr)) return false;
  }
  return true;
}

std::int64_t counted_rows(const LossRequest& r) {
  // Dense targets are never ignored, nor are rows of a call without any.
  if (r.targets || !r.has_targets() || !is_known(r)) return r.b;
  const Targets targets(r);
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < r.b; ++row) {
    bool counts = false;
    targets.for_each(row, [&](std::int64_t, float) { counts = true; });
    count += counts;
  }
  return count;
}

std::unique_ptr<Completion::State> finished(const std::string& bad) {
  if (bad.empty()) return std::make_unique<Completion::State>();
  return std::make_unique<BadTarget>(
      bad + "; its loss and gradient are NaN, the other rows are complete");
}

}  // namespace tessera::loss
