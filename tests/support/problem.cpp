// SPDX-License-Identifier: Apache-2.0
#include "tests/support/problem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <random>

namespace tessera::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  /// Below `n`.
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n));
  }
  /// Box and Muller rather than std::normal_distribution, whose sequence is the library's choice.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }
  double with_outliers() {
    const double value = normal();
    return engine_() % 64 == 0 ? 8.0 * value : value;
  }

 private:
  std::mt19937_64 engine_;
};

/// A feature of x that is 1 in every row lets a row of w add the same to a column's every logit.
void add_to_columns(oracle::Problem& p, double (*value)(std::int64_t column, std::int64_t v)) {
  const std::int64_t last = p.h - 1;
  for (std::int64_t row = 0; row < p.b; ++row) p.x[index(row * p.h + last)] = 1.0;
  for (std::int64_t j = 0; j < p.v; ++j) p.w[index(last * p.v + j)] = value(j, p.v);
}

double hash_sign(std::int64_t column) { return (column * 2654435761ll >> 7) % 2 == 0 ? 1.0 : -1.0; }

bool is_masked(std::int64_t column, std::int64_t v) { return column < v / 2 || column % 7 == 3; }

void shape_matrices(const Case& c, oracle::Problem& p) {
  if (p.h == 0) return;
  switch (c.data) {
    case Data::dominating:
      return add_to_columns(p,
                            [](std::int64_t j, std::int64_t v) { return j == v / 2 ? 40.0 : 0.0; });
    case Data::all_negative:
      return add_to_columns(p, [](std::int64_t, std::int64_t) { return -200.0; });
    case Data::large_offset:
      return add_to_columns(p, [](std::int64_t, std::int64_t) { return 1e4; });
    case Data::large_spread:
      return add_to_columns(p, [](std::int64_t j, std::int64_t) { return 1e4 * hash_sign(j); });
    case Data::equal:
      // Sums of quarters are exact in f32 in any order.
      std::fill(p.x.begin(), p.x.end(), 1.0);
      std::fill(p.w.begin(), p.w.end(), 0.25);
      return;
    case Data::one_hot_row:
      for (std::int64_t k = 0; k < p.h && p.b > 0; ++k) p.x[index(k)] *= 1e3;
      return;
    case Data::masked_row:
      if (p.b == 0) return;
      // Inf * -1 in every column of row 0; the others see an ordinary feature.
      add_to_columns(p, [](std::int64_t, std::int64_t) { return -1.0; });
      p.x[index(p.h - 1)] = infinity;
      return;
    case Data::denormals:
      // Multiples of the smallest of them, 2^-133.
      for (std::size_t i = 0; i < p.x.size(); i += 3) p.x[i] = 0x1p-133 * double(i % 127 + 1);
      for (std::size_t i = 0; i < p.w.size(); i += 5) p.w[i] = -0x1p-133 * double(i % 101 + 1);
      return;
    case Data::nan_rows:
      if (p.b > 0) p.x[0] = std::nan("");
      if (p.b > 2) p.x[index(2 * p.h)] = infinity;
      return;
    default:
      return;
  }
}

/// The softmax operator's logits by the same kinds of data.
void make_logits(const Case& c, oracle::Problem& p, Numbers& numbers) {
  p.h = -1;
  p.logits.resize(index(p.b * p.v));
  for (std::int64_t row = 0; row < p.b; ++row) {
    for (std::int64_t j = 0; j < p.v; ++j) {
      double value = numbers.with_outliers();
      switch (c.data) {
        case Data::dominating:
          value += j == p.v / 2 ? 40.0 : 0.0;
          break;
        case Data::all_negative:
          value -= 200.0;
          break;
        case Data::large_offset:
          value += 1e4;
          break;
        case Data::large_spread:
          value += 1e4 * hash_sign(j);
          break;
        case Data::equal:
          value = 2.25;
          break;
        case Data::rising:
          value += 60.0 * static_cast<double>(8 * j / p.v);
          break;
        case Data::one_hot_row:
          value *= row == 0 ? 1e3 : 1.0;
          break;
        case Data::masked:
        case Data::masked_label:
          if (is_masked(j, p.v)) value = -infinity;
          break;
        case Data::masked_row:
          if (row == 0) value = -infinity;
          break;
        case Data::nan_rows:
        case Data::nan_bias:
          if (row == 0 && j == p.v / 3) value = std::nan("");
          if (row == 2 && j == p.v / 2) value = infinity;
          break;
        default:
          break;
      }
      if (c.x_layout == XLayout::broadcast && row > 0) value = p.logits[index(j)];
      p.logits[index(row * p.v + j)] = round_to(c.x_type, value);
    }
  }
}

void make_labels(const Case& c, oracle::Problem& p, Numbers& numbers) {
  const std::int64_t v_total = p.v_total();
  const bool masks = c.data == Data::masked || c.data == Data::masked_label;
  for (std::int64_t row = 0; row < p.b; ++row) {
    std::int64_t label = numbers.below(v_total);
    for (int tries = 0; masks && is_masked(label, p.v) && tries < 1000; ++tries) {
      label = numbers.below(v_total);
    }
    if (c.data == Data::masked_label && row == 0) label = 0;
    // Half the rows of a peaked problem agree with it.
    if (c.data == Data::dominating && row % 2 == 0) label = p.v / 2;
    if (c.labels == Labels::ends) label = row % 2 == 0 ? 0 : v_total - 1;
    const bool ignored = c.labels == Labels::all_ignored ||
                         (c.labels == Labels::some_ignored && (row % 5 == 1 || row % 7 == 4));
    p.labels.push_back(ignored ? p.options.ignore_index : label);
    if (c.x_layout == XLayout::broadcast) continue;  // all rows are one row of memory
    if (ignored && !p.softmax()) {
      for (std::int64_t k = 0; k < p.h; ++k) p.x[index(row * p.h + k)] = std::nan("");
    } else if (ignored) {
      for (std::int64_t j = 0; j < p.v; ++j) p.logits[index(row * p.v + j)] = std::nan("");
    }
  }
}

void make_weights(const Case& c, oracle::Problem& p, Numbers& numbers) {
  if (c.weight == Weights::none) return;
  for (std::int64_t row = 0; row < p.b; ++row) {
    double value = round_to(c.side_type, 0.25 + numbers.uniform());
    if (c.weight == Weights::signed_and_zero) {
      if (row % 3 == 1) value = -0.5 * value;
      if (row % 4 == 3) value = 0.0;
    } else if (c.weight == Weights::cancelling) {
      // Pairs cancel exactly; the odd one out has no weight.
      value = row % 2 == 0 ? (row + 1 < p.b ? 0.75 : 0.0) : -0.75;
    }
    p.weight.push_back(value);
  }
}

void make_sides(const Case& c, oracle::Problem& p, Numbers& numbers) {
  if (c.bias && !p.softmax()) {
    for (std::int64_t j = 0; j < p.v; ++j) {
      double value = round_to(c.side_type, 0.5 * numbers.normal());
      if ((c.data == Data::masked || c.data == Data::masked_label) && is_masked(j, p.v)) {
        value = -infinity;
      }
      if (c.data == Data::large_bias) value = round_to(c.side_type, value + 200.0);
      if (c.data == Data::nan_bias && j == p.v / 2) value = std::nan("");
      p.bias.push_back(value);
    }
  }
  make_weights(c, p, numbers);
  if (c.class_weight) {
    for (std::int64_t j = 0; j < p.v_total(); ++j) {
      // Masked words and every eleventh have class weight 0, so that smoothing stays finite.
      const bool zero = j % 11 == 5 || ((c.data == Data::masked || c.data == Data::masked_label) &&
                                        is_masked(j, p.v));
      p.class_weight.push_back(zero ? 0.0 : round_to(c.side_type, 0.5 + numbers.uniform()));
    }
  }
  auto cotangent = [&](Cotangent kind, std::int64_t n, std::vector<double>& to) {
    if (kind == Cotangent::none) return;
    const double first = round_to(c.side_type, 0.5 + numbers.uniform());
    for (std::int64_t i = 0; i < n; ++i) {
      to.push_back(kind == Cotangent::stride0 || n == 1
                       ? first
                       : round_to(c.side_type, 0.5 * numbers.normal()));
    }
  };
  cotangent(c.dloss, p.options.reduction == Reduction::none ? p.b : 1, p.dloss);
  cotangent(c.dlse, p.b, p.dlse);
  // An ignored row's dlse is not read.
  for (std::int64_t row = 0; c.dlse == Cotangent::given && row < p.b; ++row) {
    if (p.labels[index(row)] == p.options.ignore_index) p.dlse[index(row)] = std::nan("");
  }
}

}  // namespace

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

oracle::Problem make_problem(const Case& c) {
  Numbers numbers(c.seed);
  oracle::Problem p;
  p.b = c.b;
  p.h = c.h;
  p.v = c.v;
  p.options = c.options;
  if (c.softmax) {
    make_logits(c, p, numbers);
  } else {
    p.x.resize(index(p.b * p.h));
    p.w.resize(index(p.h * p.v));
    // Logits of a few units, as a trained layer's: x of norm about 2, w of unit variance.
    const double x_scale = p.h > 0 ? 2.0 / std::sqrt(static_cast<double>(p.h)) : 1.0;
    for (auto& value : p.x) value = x_scale * numbers.with_outliers();
    for (auto& value : p.w) value = numbers.with_outliers();
    shape_matrices(c, p);
    if (c.x_layout == XLayout::broadcast) {
      for (std::int64_t i = p.h; i < p.b * p.h; ++i) p.x[index(i)] = p.x[index(i % p.h)];
    }
    for (auto& value : p.x) value = round_to(c.x_type, value);
    for (auto& value : p.w) value = round_to(c.w_type, value);
  }
  make_labels(c, p, numbers);
  make_sides(c, p, numbers);
  return p;
}

}  // namespace tessera::test
