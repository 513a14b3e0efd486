// SPDX-License-Identifier: Apache-2.0
#include "tessera/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/judge.hpp"
#include "bench/operator.hpp"

namespace tessera::bench {
namespace {

constexpr double u = unit_roundoff;

/// The keys that one query sees, by the textbook in double.
class SeenKeys {
 public:
  SeenKeys(const BenchOperator& op, const Data& data, std::int64_t row)
      : shape_(data.key.shape), q_(data.arrays["q"]), k_(data.arrays["k"]), v_(data.arrays["v"]) {
    const auto number = [&](const char* name) { return op.option_of(data.key, name); };
    const auto integer = [&](const char* name) { return std::get<std::int64_t>(number(name)); };
    const std::int64_t s = shape_['S'], t = shape_['T'];
    const auto causal = static_cast<attention::Causal>(integer("causal"));
    const auto left = integer("window_left"), right = integer("window_right");
    const double cap = static_cast<double>(std::get<float>(number("logit_soft_cap")));
    const auto given = number("scale");
    const double scale = std::holds_alternative<Unset>(given)
                             ? 1.0 / std::sqrt(static_cast<double>(shape_['D']))
                             : static_cast<double>(std::get<float>(given));
    const std::int64_t head = row / s, place = row % s;
    const std::int64_t p = causal == attention::Causal::upper_left ? place : place + t - s;
    // Heads of q that share one of k stand beside each other, in every sequence.
    first_key_ = head / (shape_['Q'] / shape_['K']) * t;
    for (std::int64_t j = 0; j < t; ++j) {
      if (causal != attention::Causal::no && j > p) continue;
      if ((left >= 0 && p - j > left) || (right >= 0 && j - p > right)) continue;
      add(row, j, scale, cap);
    }
  }

  /// y of the row at `column`, and what an implementation may be off by before it rounds.
  std::pair<double, double> value(std::int64_t column) const {
    double y = 0.0, size = 0.0, off = 0.0;
    for (const auto& key : keys_) {
      y += share(key) * of_v(key, column);
      size += share(key) * std::abs(of_v(key, column));
    }
    for (const auto& key : keys_) {
      const double error = std::expm1(key.error + 3.0 * u * (most_ - key.logit) + 4.0 * u);
      off += share(key) * error * std::abs(of_v(key, column) - y);
    }
    const auto n = static_cast<std::int64_t>(keys_.size());
    // Terms are positive, and nearly all of a sum may be one of them.
    const double terms = std::max(root(n), static_cast<double>(n) / 24.0);
    return {y, off + (8.0 + 4.0 * terms) * u * size};
  }

 private:
  struct Key {
    std::int64_t place;
    double logit, error;
  };

  void add(std::int64_t row, std::int64_t j, double scale, double cap) {
    const std::int64_t d = shape_['D'];
    double product = 0.0, q_norm = 0.0, k_norm = 0.0;
    for (std::int64_t i = 0; i < d; ++i) {
      const double q = element(q_, row * d + i), k = element(k_, (first_key_ + j) * d + i);
      product += q * k;
      q_norm += q * q;
      k_norm += k * k;
    }
    double logit = scale * product;
    const double error = 4.0 * root(d + 2) * u * std::abs(scale) * std::sqrt(q_norm * k_norm) +
                         11.0 * u * std::abs(logit) + 4.0 * u * cap;
    if (cap > 0.0) logit = cap * std::tanh(logit / cap);
    keys_.push_back({j, logit, error});
    const double before = most_;
    most_ = keys_.size() == 1 ? logit : std::max(most_, logit);
    sum_ = sum_ * std::exp(before - most_) + std::exp(logit - most_);
  }
  double share(const Key& key) const { return std::exp(key.logit - most_) / sum_; }
  double of_v(const Key& key, std::int64_t column) const {
    return element(v_, (first_key_ + key.place) * shape_['E'] + column);
  }

  const ProblemExtents& shape_;
  const HostTensor &q_, &k_, &v_;
  std::int64_t first_key_ = 0;  ///< of the head, among the rows of k
  std::vector<Key> keys_{};
  double most_ = 0.0, sum_ = 0.0;
};

class Benched final : public BenchOperator {
 public:
  Benched() : BenchOperator("attention") {}

  bool multiplies() const override { return true; }
  bool sets(std::string_view option) const override {
    return description().option(option) != nullptr;
  }
  std::string why_no_products() const override { return "its two products are no linear layer's"; }
  /// A block's rows are queries of all heads that share one of k.
  std::int64_t extent_along(const ProblemExtents& shape, const std::string& axis) const override {
    return axis == "q_block_size" ? shape['Q'] / shape['K'] * shape['S'] : shape['T'];
  }

  void make_arrays(Data& data) const override {
    std::uint64_t seed = 21;
    for (const auto& array : operands(data.key)) {
      // Logits have this spread, which q brings.
      const float scale = seed == 21 ? spread_of_logits : 1.0f;
      data.arrays.set(array.name,
                      random_tensor(array.type, array.extents, array.strides, seed++, scale));
    }
  }

  Deviation judge(const Data& data, const Outcome& outcome, double) const override {
    const HostTensor& y = outcome["y"];
    const auto& shape = data.key.shape;
    const std::int64_t e = shape['E'];
    Deviation deviation;
    for (const auto row : sample(shape['B'] * shape['Q'] * shape['S'], sampled_rows, 0)) {
      const SeenKeys seen(*this, data, row);
      for (std::int64_t i = 0; i < e; ++i) {
        const auto [wanted, tolerance] = seen.value(i);
        const double off = element(y, row * e + i) - wanted;
        deviation.add(off);
        deviation.hold(
            fmt::format("y, row {}", row), off,
            tolerance + roundoff(y.dtype()) * (std::abs(wanted) + tolerance) + smallest(y.dtype()));
      }
    }
    return deviation;
  }
};

}  // namespace

const BenchOperator& attention_in_bench() {
  static const Benched benched;
  return benched;
}

}  // namespace tessera::bench
