// SPDX-License-Identifier: Apache-2.0
#include "host/loss/targets.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "host/loss/streaming_rows.hpp"
#include "host/loss/validate.hpp"
#include "reference/streaming/spans.hpp"

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
  return view && !view.is_device() ? number(view, column * view.strides()[0]) : 1.0f;
}

Targets::Sums Targets::dense_sums(std::int64_t row) const {
  // f32 sums of so few, side by side in the kernel, lose less than f32 can say of a row.
  constexpr std::int64_t block = 512;
  float of_targets[block];
  float of_classes[block];
  const auto& kernels = streaming::kernels();
  const View& classes = request_.class_weight;
  const bool weighs = classes && !classes.is_device();
  const auto load = [&](const View& view, std::int64_t begin, std::int64_t n, float* scratch) {
    const auto type = streaming_type(view.dtype());
    const void* from = streaming::at(view.host_data(), type, begin);
    if (view.dtype() == DType::f32 && view.strides().back() == 1) {
      return static_cast<const float*>(from);
    }
    kernels.load(from, type, view.strides().back(), n, scratch);
    return static_cast<const float*>(scratch);
  };
  Sums sums;
  for (std::int64_t j = 0; j < request_.v_total; j += block) {
    const std::int64_t n = std::min(block, request_.v_total - j);
    const View& view = request_.targets;
    const float* q = load(view, targets_(row) + j * view.strides().back(), n, of_targets);
    const auto plain = kernels.weigh(q, n, 1.0f, 0.0f, nullptr, nullptr);
    sums.bad = sums.bad || plain.bad;
    sums.total += static_cast<double>(plain.sum);
    if (!weighs) continue;
    const float* c = load(classes, j * classes.strides()[0], n, of_classes);
    sums.weighted += static_cast<double>(kernels.weigh(q, n, 1.0f, 0.0f, c, nullptr).sum);
  }
  if (!weighs) sums.weighted = sums.total;
  return sums;
}

std::vector<Targets::Sums> Targets::sums_of_rows(dispatch::ThreadPool* threads) const {
  // Long enough, a tenth of a millisecond, that taking a task costs nothing beside it.
  constexpr std::int64_t numbers_per_task = 1 << 18;
  const std::int64_t rows =
      std::max<std::int64_t>(1, numbers_per_task / std::max<std::int64_t>(1, request_.v_total));
  std::vector<Sums> sums(static_cast<std::size_t>(request_.b));
  const auto add_up = [&](std::int64_t task, int) {
    const std::int64_t end = std::min(request_.b, (task + 1) * rows);
    for (std::int64_t row = task * rows; row < end; ++row) {
      sums[static_cast<std::size_t>(row)] = sums_of(row);
    }
  };
  const std::int64_t tasks = streaming::ceil_div(request_.b, rows);
  if (threads != nullptr && tasks > 1) {
    dispatch::parallel_for(*threads, "sums of targets", tasks, add_up);
  } else {
    for (std::int64_t task = 0; task < tasks; ++task) add_up(task, 0);
  }
  return sums;
}

Targets::Sums Targets::sums_of(std::int64_t row) const {
  if (request_.target_weights) {
    // A good row, of which nothing else is asked for any more.
    const float weighted = (*request_.target_weights)[static_cast<std::size_t>(row)];
    return {.total = 1.0, .weighted = static_cast<double>(weighted)};
  }
  if (request_.targets) return dense_sums(row);
  Sums sums;
  sums.ignored = request_.has_targets();
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
  const std::string where = arguments::describe_row(row, request_.leading);
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
  return std::make_unique<BadTarget>(bad +
                                     "; its loss and gradient are NaN, the other rows are "
                                     "complete; mend its targets and call again");
}

}  // namespace tessera::loss
