// SPDX-License-Identifier: Apache-2.0
#include "tests/support/operators/linear_cross_entropy.hpp"

#include <algorithm>
#include <limits>

#include "tests/support/numbers.hpp"
#include "tests/support/operator_calls.hpp"

namespace tessera::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A feature of x that is 1 in every row lets a row of w add the same to a column's every logit.
void add_to_columns(oracle::Problem& p, double (*value)(std::int64_t column, std::int64_t v)) {
  const std::int64_t last = p.h - 1;
  for (std::int64_t row = 0; row < p.b; ++row) p.x[index(row * p.h + last)] = 1.0;
  for (std::int64_t j = 0; j < p.v; ++j) p.w[index(last * p.v + j)] = value(j, p.v);
}

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
    case Data::denormals: {
      // Multiples of the smallest of them.
      const double least = c.x_type == DType::f16 ? 0x1p-24 : 0x1p-133;
      for (std::size_t i = 0; i < p.x.size(); i += 3) p.x[i] = least * double(i % 127 + 1);
      for (std::size_t i = 0; i < p.w.size(); i += 5) p.w[i] = -least * double(i % 101 + 1);
      return;
    }
    case Data::nan_rows:
      if (p.b > 0) p.x[0] = std::nan("");
      if (p.b > 2) p.x[index(2 * p.h)] = infinity;
      return;
    default:
      return;
  }
}

const char* name_of(WLayout layout) {
  switch (layout) {
    case WLayout::hv:
      return "hv";
    case WLayout::vh:
      return "vh";
    case WLayout::hv_padded:
      return "hv_padded";
    case WLayout::vh_padded:
      return "vh_padded";
    case WLayout::strided:
      return "strided";
  }
  return "?";
}

void make_matrices(const Case& c, oracle::Problem& p, Numbers& numbers) {
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

void add_bias(const Case& c, oracle::Problem& p, Numbers& numbers) {
  if (!c.bias) return;
  for (std::int64_t j = 0; j < p.v; ++j) {
    double value = round_to(c.side_type, 0.5 * numbers.normal());
    if (has_masks(c.data) && is_masked(j, p.v)) {
      value = -infinity;
    }
    if (c.data == Data::large_bias) value = round_to(c.side_type, value + 200.0);
    if (c.data == Data::nan_bias && j == p.v / 2) value = std::nan("");
    p.bias.push_back(value);
  }
}

class LinearCrossEntropy final : public TestOperatorOf<linear_cross_entropy::Operator> {
 public:
  std::vector<CaseGroup> groups() const override { return linear_cross_entropy_groups(); }
  std::vector<Case> interpreted() const override { return linear_cross_entropy_interpreted(); }

  oracle::Problem make_problem(const Case& c) const override {
    Numbers numbers(c.seed);
    oracle::Problem p = empty_problem(c);
    make_matrices(c, p, numbers);
    add_labels(c, p, numbers, [&](std::int64_t row) {
      for (std::int64_t k = 0; k < p.h; ++k) p.x[index(row * p.h + k)] = std::nan("");
    });
    add_bias(c, p, numbers);
    add_loss_inputs(c, p, numbers);
    return p;
  }

  std::vector<double> oracle::Problem::*own_values(std::string_view input) const override {
    if (input == "x") return &oracle::Problem::x;
    return input == "w" ? &oracle::Problem::w : &oracle::Problem::bias;
  }
  ArrayMemory own_memory(const Case& c, const RowLayout& rows,
                         std::string_view input) const override {
    if (input == "x") return {c.x_type, rows.x_strides};
    if (input == "w") return {c.w_type, matrix_layout(c.w_layout, c.h, c.v).strides};
    return {c.side_type};
  }
  ArrayMemory gradient_memory(const Case& c, const RowLayout& rows,
                              std::string_view gradient) const override {
    if (gradient == "grad_x") {
      // A gradient must not overlap itself, so a broadcast row has a dense one.
      const bool dense = c.x_layout == XLayout::broadcast;
      return {c.grad_x_type.value_or(c.x_type), dense ? Dims{} : rows.x_strides};
    }
    if (gradient == "grad_w") {
      const WLayout layout = c.grad_w_layout.value_or(c.w_layout);
      return {c.grad_w_type.value_or(c.w_type), matrix_layout(layout, c.h, c.v).strides};
    }
    return {c.grad_bias_type, c.strided_outputs ? Dims{2} : Dims{}};
  }
  std::vector<JudgedGradient> judged() const override {
    using By = JudgedGradient::By;
    return {
        {"grad_x", &oracle::Gradients::grad_x, &GradientTolerance::grad_x, By::rows},
        {"grad_w", &oracle::Gradients::grad_w, &GradientTolerance::grad_w, By::columns},
        {"grad_bias", &oracle::Gradients::grad_bias, &GradientTolerance::grad_bias, By::elements}};
  }

  bool multiplies(const Case& c, DType type) const override {
    return c.x_type == type && c.w_type == type;
  }
  bool keeps_dz_in_f16(const Case& c) const override {
    return multiplies(c, DType::f16) && c.options.reduction != Reduction::none &&
           c.targets == Targets::labels && c.weight == Weights::none && !c.class_weight &&
           c.dlse == Cotangent::none;
  }
  std::string types_of(const Case& c) const override {
    return std::string(to_string(c.x_type)) + ":" + to_string(c.w_type);
  }
  std::string layout_of(const Case& c) const override { return name_of(c.w_layout); }
};

}  // namespace

template <>
const TestOperator& test_operator<linear_cross_entropy::Operator>() {
  static const LinearCrossEntropy op;
  return op;
}

}  // namespace tessera::test
