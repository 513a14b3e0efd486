// SPDX-License-Identifier: Apache-2.0
#include "tests/support/attention_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "tests/support/logit_errors.hpp"
#include "tests/support/numbers.hpp"

// Tolerances, derived; u, lambda and the reasoning about sums are tolerance.cpp's.
//
// Inputs are exact: the text reads the rounded ones.
//
// Logits. A sum of D products in f32, any order: lambda sqrt(D + 2) u |q| |k|, times scale and the
// slope of the cap; 8 u of the scaled product for scale and cap, 4 u cap for a tanh that is made of
// exponentials, 3 u of each of the terms that are added.
//
// Exponentials. exp(s - m) of a logit that is off by e is off by e + 3 u (m - s) + 4 u, relatively:
// the difference, log2(e) and exp2. Steps of a running maximum add up to m - s; each that rises
// costs one factor more, of which sums over keys have their share below.
//
//   lse  sum_j p_j (that of j) + (8 + sum_terms) u + 2 u (|lse| + |m|)
//   y    d y = sum_j p_j (v_j - y) ds_j, so sum_j p_j |v_j - y| (that of j), and
//        (8 + lambda sum_terms) u sum_j p_j |v_j| for the sums
//
// The sink is a key whose v is 0.

namespace tessera::test {
namespace {

double element(const std::byte* at, DType type) {
  switch (type) {
    case DType::f32:
      return *reinterpret_cast<const float*>(at);
    case DType::bf16:
      return static_cast<float>(*reinterpret_cast<const bf16*>(at));
    case DType::f16:
      return static_cast<float>(*reinterpret_cast<const f16*>(at));
    case DType::i32:
      return *reinterpret_cast<const std::int32_t*>(at);
    default:
      return static_cast<double>(*reinterpret_cast<const std::int64_t*>(at));
  }
}

double norm(const double* a, std::int64_t n) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < n; ++i) squares += a[i] * a[i];
  return std::sqrt(squares);
}

}  // namespace

std::vector<double> elements_of(const View& view) {
  std::vector<double> all;
  const auto* base = static_cast<const std::byte*>(view.host_data());
  const auto step = static_cast<std::int64_t>(size_of(view.dtype()));
  all.reserve(index(view.size()));
  for (std::int64_t i = 0; i < view.size(); ++i) {
    all.push_back(
        element(base + step * row_offset(view.extents(), view.strides(), i), view.dtype()));
  }
  return all;
}

AttentionText::AttentionText(const attention::Inputs& inputs, const attention::Options& options,
                             bool exact_logits)
    : options_(options),
      exact_logits_(exact_logits),
      bias_extents_(inputs.bias.extents()),
      q_(elements_of(inputs.q)),
      k_(elements_of(inputs.k)),
      v_(elements_of(inputs.v)),
      bias_(elements_of(inputs.bias)),
      lengths_(elements_of(inputs.kv_lengths)),
      sinks_(elements_of(inputs.sinks)),
      slopes_(elements_of(inputs.alibi_slopes)) {
  const Dims& q = inputs.q.extents();
  const Dims& k = inputs.k.extents();
  const int axis = q.rank() - 3;
  batch_extents_ = q.first(axis);
  batch_ = batch_extents_.product();
  q_heads_ = q[axis];
  s_ = q[axis + 1];
  d_ = q[axis + 2];
  kv_heads_ = k[axis];
  t_ = k[axis + 1];
  e_ = inputs.v.extents()[axis + 2];
  scale_ = options.scale ? static_cast<double>(*options.scale)
                         : 1.0 / std::sqrt(static_cast<double>(d_));
}

double AttentionText::bias_at(const Place& at, std::int64_t key) const {
  std::int64_t offset = 0, batch = at.batch;
  std::int64_t places[Dims::max_rank];
  const int axis = batch_extents_.rank();
  for (int i = axis - 1; i >= 0; --i) {
    places[i] = batch % batch_extents_[i];
    batch /= batch_extents_[i];
  }
  places[axis] = at.head;
  places[axis + 1] = at.query;
  places[axis + 2] = key;
  for (int i = 0; i < bias_extents_.rank(); ++i) {
    offset = offset * bias_extents_[i] + (bias_extents_[i] == 1 ? 0 : places[i]);
  }
  return bias_[index(offset)];
}

AttentionText::Logit AttentionText::logit_of(const Place& at, std::int64_t key,
                                             double position) const {
  const double* q = q_.data() + ((at.batch * q_heads_ + at.head) * s_ + at.query) * d_;
  const double* k = k_.data() + (kv_head_of(at) * t_ + key) * d_;
  double product = 0.0;
  for (std::int64_t i = 0; i < d_; ++i) product += q[i] * k[i];
  Logit logit{key, scale_ * product, 0.0};
  const double sum_error = lambda * root(d_ + 2) * u * std::abs(scale_) * norm(q, d_) * norm(k, d_);
  double slope = 1.0;
  const auto cap = static_cast<double>(options_.logit_soft_cap);
  const double scaled = std::abs(logit.value);
  if (cap > 0.0) {
    const double t = std::tanh(logit.value / cap);
    logit.value = cap * t;
    slope = 1.0 - t * t;
  }
  // An infinite product would make NaN of a slope of 0.
  logit.error = (slope > 0.0 ? slope * (sum_error + 8 * u * scaled) : 0.0) + 4 * u * cap;
  double terms = std::abs(logit.value);
  if (!bias_.empty()) {
    const double bias = bias_at(at, key);
    logit.value += bias;
    terms += std::abs(bias);
  }
  if (!slopes_.empty()) {
    const double distance = slopes_[index(at.head)] * std::abs(position - static_cast<double>(key));
    logit.value -= distance;
    terms += std::abs(distance);
  }
  logit.error += 3 * u * terms;
  if (exact_logits_) logit.error = 0.0;
  return logit;
}

std::vector<AttentionText::Logit> AttentionText::logits_of(const Place& at) const {
  const std::int64_t n =
      lengths_.empty() ? t_ : static_cast<std::int64_t>(lengths_[index(at.batch)]);
  const bool upper_left = options_.causal == attention::Causal::upper_left;
  const std::int64_t p = upper_left ? at.query : at.query + n - s_;
  std::vector<Logit> logits;
  for (std::int64_t j = 0; j < n; ++j) {
    if (options_.causal != attention::Causal::no && j > p) continue;
    // Differences, because a window may be as large as an integer.
    if (options_.window_left >= 0 && p - j > options_.window_left) continue;
    if (options_.window_right >= 0 && j - p > options_.window_right) continue;
    if (!bias_.empty() && bias_at(at, j) == -std::numeric_limits<double>::infinity()) continue;
    logits.push_back(logit_of(at, j, static_cast<double>(p)));
  }
  if (!sinks_.empty()) logits.push_back({-1, sinks_[index(at.head)], 0.0});
  return logits;
}

AttentionRow AttentionText::row(std::int64_t flat) const {
  const Place at{flat / (q_heads_ * s_), flat / s_ % q_heads_, flat % s_};
  const auto logits = logits_of(at);
  AttentionRow row;
  const double infinity = std::numeric_limits<double>::infinity();
  row.y.assign(index(e_), 0.0);
  row.y_tolerance.assign(index(e_), 0.0);
  double most = -infinity;
  bool spoiled = false;
  for (const auto& logit : logits) {
    spoiled = spoiled || std::isnan(logit.value) || logit.value == infinity;
    most = std::max(most, logit.value);
  }
  if (spoiled) {
    row.lse = std::nan("");
    row.y.assign(index(e_), std::nan(""));
    return row;
  }
  row.lse = -infinity;
  if (most == -infinity) return row;
  double sum = 0.0;
  for (const auto& logit : logits) sum += std::exp(logit.value - most);
  row.lse = most + std::log(sum);
  const auto terms = sum_terms(static_cast<std::int64_t>(logits.size()));
  std::vector<double> p, errors, magnitude(index(e_), 0.0);
  row.lse_tolerance = (8.0 + terms) * u + 2 * u * (std::abs(row.lse) + std::abs(most));
  for (const auto& [key, value, error] : logits) {
    p.push_back(std::exp(value - most) / sum);
    errors.push_back(p.back() > 0.0 ? p.back() * std::expm1(error + 3 * u * (most - value) + 4 * u)
                                    : 0.0);
    row.lse_tolerance += errors.back();
  }
  const auto v_of = [&](std::int64_t key) { return v_.data() + (kv_head_of(at) * t_ + key) * e_; };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i].key < 0) continue;
    const double* v = v_of(logits[i].key);
    for (std::int64_t e = 0; e < e_; ++e) {
      row.y[index(e)] += p[i] * v[e];
      magnitude[index(e)] += p[i] * std::abs(v[e]);
    }
  }
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double* v = logits[i].key < 0 ? nullptr : v_of(logits[i].key);
    for (std::int64_t e = 0; e < e_; ++e) {
      row.y_tolerance[index(e)] +=
          errors[i] * std::abs((v == nullptr ? 0.0 : v[e]) - row.y[index(e)]);
    }
  }
  for (std::int64_t e = 0; e < e_; ++e) {
    row.y_tolerance[index(e)] += (8.0 + lambda * terms) * u * magnitude[index(e)];
  }
  return row;
}

}  // namespace tessera::test
