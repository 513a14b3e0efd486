// SPDX-License-Identifier: Apache-2.0
#include "host/loss/reference_loss.hpp"

#include <algorithm>
#include <cmath>

#include "host/arguments/offsets.hpp"
#include "host/loss/targets.hpp"

namespace tessera::loss {
namespace {

/// `max` rounded to f32, and the sums moved so that they are relative to what backward takes for
/// the maximum then: else exp would turn the rounding into a relative error of the sum.
struct RoundedStatistics {
  float max;
  double sum, class_logit, exp_logit, target_logit, weighted_logit;

  RoundedStatistics(const oracle::Values& values, std::size_t row)
      : max(static_cast<float>(values.max[row])) {
    const bool finite = std::isfinite(values.max[row]) && std::isfinite(max);
    const double moved =
        finite ? values.max[row] - oracle::base_of(values.max[row], static_cast<double>(max)) : 0.0;
    sum = values.sum[row] * std::exp(moved);
    class_logit = values.class_logit[row] + values.class_sum[row] * moved;
    target_logit = values.target_logit[row] + values.target_sum[row] * moved;
    weighted_logit = values.weighted_logit[row] + values.weighted_sum[row] * moved;
    exp_logit = (values.exp_logit[row] + values.sum[row] * moved) * std::exp(moved);
  }
};

}  // namespace

std::optional<std::string> reference_refusal(const LossRequest& request) {
  // In double, because the product itself may not fit an integer.
  if (static_cast<double>(request.b) * static_cast<double>(request.v) >
      static_cast<double>(reference_max_logits)) {
    return "it materialises the logits in double, and B * V = " + std::to_string(request.b) +
           " * " + std::to_string(request.v) + " is beyond its limit of 2^26; use eigen";
  }
  const bool whole = request.options.vocab_offset == 0 && request.v == request.v_total;
  const bool merged = request.pass == Pass::forward_partial || request.pass == Pass::backward;
  if (!whole && !merged) {
    return std::string(to_string(request.pass)) +
           " needs the whole vocabulary; on a shard use forward_partial, combine and backward";
  }
  return std::nullopt;
}

std::vector<double> read_matrix(const View& view, std::int64_t rows, std::int64_t columns,
                                const oracle::Problem* problem) {
  std::vector<double> values(static_cast<std::size_t>(rows * columns), 0.0);
  const arguments::RowOffsets offsets(view, view.rank() - 1);
  const std::int64_t stride = view.strides().back();
  for (std::int64_t row = 0; row < rows; ++row) {
    if (problem && oracle::is_ignored(*problem, row)) continue;
    const std::int64_t begin = offsets(row);
    for (std::int64_t j = 0; j < columns; ++j) {
      values[static_cast<std::size_t>(row * columns + j)] =
          arguments::load_f32(view.host_data(), view.dtype(), begin + j * stride);
    }
  }
  return values;
}

std::vector<double> read_vector(const View& view, std::int64_t count) {
  if (!view) return {};
  std::vector<double> values(static_cast<std::size_t>(count));
  const arguments::RowOffsets offsets(view, view.rank());
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] =
        arguments::load_f32(view.host_data(), view.dtype(), offsets(i));
  }
  return values;
}

namespace {

/// The request with its targets on the host.
LossRequest with_targets(const LossRequest& request, dispatch::HostViews& views) {
  LossRequest result = request;
  for (const LossInput input : {LossInput::labels, LossInput::target_indices,
                                LossInput::target_probs, LossInput::targets}) {
    View& view = result.call.inputs[result.places()[input]];
    view = views.read(view);
  }
  return result;
}

std::string first_bad(const oracle::Problem& problem, const Targets& targets) {
  for (std::int64_t row = 0; row < problem.b; ++row) {
    if (oracle::is_bad(problem, row)) return targets.why_bad(row);
  }
  return {};
}

/// Returns what is wrong with the first row whose target is none; empty: nothing.
std::string read_targets(const LossRequest& request, dispatch::HostViews& views,
                         oracle::Problem& problem) {
  const LossRequest mapped = with_targets(request, views);
  const Targets targets(mapped);
  if (request.targets) {
    problem.targets = read_matrix(mapped.targets, request.b, request.v_total);
    return first_bad(problem, targets);
  }
  problem.k = request.k;
  for (std::int64_t row = 0; row < request.b; ++row) {
    if (request.labels) problem.labels.push_back(targets.label_of(row));
    for (std::int64_t pair = 0; pair < request.k; ++pair) {
      const auto [column, q] = targets.pair_of(row, pair);
      problem.target_indices.push_back(column);
      problem.target_probs.push_back(static_cast<double>(q));
    }
  }
  // Without a single pair no row names a word.
  if (request.target_indices && request.k == 0) {
    problem.labels.assign(static_cast<std::size_t>(request.b), request.options.ignore_index);
  }
  return first_bad(problem, targets);
}

}  // namespace

void read_layer(dispatch::HostViews& views, const View& x, const View& w, const View& bias,
                std::int64_t h, const oracle::Problem& problem, LayerArrays to) {
  to.x = read_matrix(views.read(x), problem.b, h, &problem);
  to.w = read_matrix(views.read(w), h, problem.v);
  to.bias = read_vector(views.read(bias), problem.v);
}

std::optional<std::string> layer_refusal(const LossRequest& request, std::int64_t h) {
  // x, w and their gradients are copied in double: 2^30 elements are 8 GiB a copy.
  constexpr double max_elements = 1073741824.0;
  const auto width = static_cast<double>(h);
  if (static_cast<double>(request.b) * width <= max_elements &&
      width * static_cast<double>(request.v) <= max_elements) {
    return std::nullopt;
  }
  return "it copies x and w in double, and B * H or H * V is beyond its limit of 2^30 (B = " +
         std::to_string(request.b) + ", H = " + std::to_string(h) +
         ", V = " + std::to_string(request.v) + "); use eigen";
}

oracle::Problem reference_problem(const LossRequest& request, dispatch::HostViews& views,
                                  std::string& bad) {
  oracle::Problem problem;
  problem.b = request.b;
  problem.v = request.v;
  problem.options = request.options;
  problem.options.vocab_size_total = request.v_total;
  bad = read_targets(request, views, problem);
  problem.weight = read_vector(views.read(request.weight), request.b);
  problem.class_weight = read_vector(views.read(request.class_weight), request.v_total);
  if (!has_gradients(request.pass)) return problem;

  const bool none = request.options.reduction == Reduction::none;
  problem.dloss = read_vector(views.read(request.dloss), none ? request.b : 1);
  problem.dlse = read_vector(views.read(request.dlse), request.b);
  if (request.pass != Pass::backward) return problem;
  if (request.statistics) {
    const auto saved = read_matrix(views.read(request.statistics), request.b, 2);
    for (std::size_t i = 0; i < saved.size(); i += 2) {
      problem.max.push_back(saved[i]);
      problem.sum.push_back(saved[i + 1]);
    }
  } else if (request.lse) {
    // exp(logit - lse) is p: lse is a maximum whose sum is 1.
    problem.max = read_vector(views.read(request.lse), request.b);
    problem.sum.assign(problem.max.size(), 1.0);
  }
  return problem;
}

void write_vector(const MutableView& target, const std::vector<double>& values,
                  dispatch::HostViews& views) {
  if (!target) return;
  const MutableView view = views.write(target);
  const arguments::RowOffsets offsets(view, view.rank());
  for (std::size_t i = 0; i < values.size(); ++i) {
    arguments::store_f32(view.host_data(), view.dtype(), offsets(static_cast<std::int64_t>(i)),
                         static_cast<float>(values[i]));
  }
}

void write_values(const LossRequest& request, const oracle::Values& values,
                  dispatch::HostViews& views) {
  const auto& outputs = request.outputs;
  write_vector(outputs.loss, values.loss, views);
  write_vector(outputs.lse, values.lse, views);
  write_vector(outputs.label_logprob, values.label_logprob, views);
  write_vector(outputs.entropy, values.entropy, views);
  write_vector(outputs.z_loss, values.z_loss, views);
  const std::size_t rows = values.max.size();
  if (outputs.argmax) {
    const MutableView view = views.write(outputs.argmax);
    const arguments::RowOffsets offsets(view, view.rank());
    for (std::size_t i = 0; i < rows; ++i) {
      arguments::store_int(view.host_data(), view.dtype(), offsets(static_cast<std::int64_t>(i)),
                           values.argmax[i]);
    }
  }
  if (outputs.statistics) {
    const MutableView view = views.write(outputs.statistics);
    const arguments::RowOffsets offsets(view, view.rank() - 1);
    auto* data = static_cast<float*>(view.host_data());
    for (std::size_t i = 0; i < rows; ++i) {
      const RoundedStatistics rounded(values, i);
      const std::int64_t begin = offsets(static_cast<std::int64_t>(i));
      data[begin] = rounded.max;
      data[begin + view.strides().back()] = static_cast<float>(rounded.sum);
    }
  }
  if (request.partial) {
    const MutableView view = views.write(request.partial);
    auto* data = static_cast<PartialWords*>(view.host_data());
    for (std::size_t i = 0; i < rows; ++i) {
      const RoundedStatistics rounded(values, i);
      const std::int64_t first = values.argmax[i] < 0 ? 0 : request.options.vocab_offset;
      data[i] = {.max = rounded.max,
                 .sum = static_cast<float>(rounded.sum),
                 .label_logit = static_cast<float>(values.label_logit[i]),
                 .class_logit = static_cast<float>(rounded.class_logit),
                 .class_sum = static_cast<float>(values.class_sum[i]),
                 .argmax_value = static_cast<float>(values.argmax_value[i]),
                 .argmax = static_cast<std::int32_t>(values.argmax[i] - first),
                 .exp_logit = static_cast<float>(rounded.exp_logit),
                 .target_logit = static_cast<float>(rounded.target_logit),
                 .target_sum = static_cast<float>(values.target_sum[i]),
                 .weighted_logit = static_cast<float>(rounded.weighted_logit),
                 .weighted_sum = static_cast<float>(values.weighted_sum[i])};
    }
  }
}

void write_matrix(const MutableView& view, const std::vector<double>& values, bool accumulate) {
  const std::int64_t columns = view.extents().back();
  const std::int64_t rows = view.extents().first(view.rank() - 1).product();
  const arguments::RowOffsets offsets(view, view.rank() - 1);
  const std::int64_t stride = view.strides().back();
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t begin = offsets(row);
    for (std::int64_t j = 0; j < columns; ++j) {
      const std::int64_t at = begin + j * stride;
      auto value = static_cast<float>(values[static_cast<std::size_t>(row * columns + j)]);
      if (accumulate) value += arguments::load_f32(view.host_data(), view.dtype(), at);
      arguments::store_f32(view.host_data(), view.dtype(), at, value);
    }
  }
}

}  // namespace tessera::loss
