// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/support/cases.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/operator_calls.hpp"

namespace tessera::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Logits by the same kinds of data as matrices.
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

/// Rows of several blocks that a CPU streams: nothing asked for but sums of exponentials.
std::vector<Case> streamed() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, auto change) {
    Case c = base("streamed_" + name);
    c.b = 7;
    // Two blocks of 16 lanes, eight of 4, and a tail that is a multiple of none.
    c.v = 4096 + 77;
    c.outputs = lse_bit | label_logprob_bit | z_loss_bit | statistics_bit;
    c.block_sizes = {64, 64, 8192};
    c.labels = Labels::some_ignored;
    change(c);
    cases.push_back(c);
    if (c.accumulate == all_gradients || c.grad_x_type) return;
    c.name += "_in_place";
    c.in_place = true;
    cases.push_back(c);
  };
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const auto typed = [&](const std::string& name, auto change) {
      add(name + "_" + to_string(type), [&](Case& c) {
        c.x_type = c.w_type = type;
        change(c);
      });
    };
    typed("plain", [](Case& c) { c.dlse = Cotangent::given; });
    typed("ends", [](Case& c) { c.labels = Labels::ends; });
    typed("scaled", [](Case& c) { c.options.logit_scale = -0.75f; });
    typed("padded", [](Case& c) { c.x_layout = XLayout::padded; });
    typed("slices", [](Case& c) { c.block_sizes = {64, 64, 2112}; });
    if (type == DType::f16) continue;  // its range ends before most of what follows
    for (const auto& [data, name] :
         {std::pair{Data::rising, "rising"}, std::pair{Data::masked, "masked"},
          std::pair{Data::masked_label, "masked_label"}, std::pair{Data::masked_row, "masked_row"},
          std::pair{Data::nan_rows, "nan_rows"}, std::pair{Data::large_offset, "large_offset"},
          std::pair{Data::large_spread, "large_spread"}, std::pair{Data::equal, "equal"},
          std::pair{Data::dominating, "dominating"}}) {
      typed(name, [data = data](Case& c) {
        c.data = data;
        const bool infinite =
            data == Data::masked_label || data == Data::masked_row || data == Data::nan_rows;
        if (!infinite) return;
        c.options.reduction = Reduction::none;
        c.labels = Labels::uniform;  // row 0 counts
        // An infinite z-loss would make any gradient NaN.
        if (data != Data::masked_row) return;
        c.options.logsumexp_weight = 0.0f;
        c.outputs &= ~z_loss_bit;
      });
    }
    const DType other = type == DType::f32 ? DType::bf16 : DType::f32;
    typed("other_gradient", [=](Case& c) { c.grad_x_type = other; });
    typed("other_gradient_nan", [=](Case& c) {
      c.grad_x_type = other;
      c.data = Data::nan_rows;
      c.options.reduction = Reduction::none;
      c.labels = Labels::uniform;
    });
    typed("accumulate", [](Case& c) { c.accumulate = true; });
    typed("smoothing", [](Case& c) { c.options.label_smoothing = 0.1f; });
    typed("from_lse", [](Case& c) { c.from_lse = true; });
  }
  return cases;
}

/// Of the types that a row can have; where the gradient's is the same, also in place.
std::vector<Case> types_of_rows() {
  std::vector<Case> cases;
  for (Case c : types()) {
    if (c.x_type != c.w_type || c.w_layout == WLayout::hv) continue;
    cases.push_back(c);
    const bool other_type = c.grad_x_type.value_or(c.x_type) != c.x_type;
    if (c.accumulate == all_gradients || other_type) continue;
    c.name += "_in_place";
    c.in_place = true;
    cases.push_back(c);
  }
  return cases;
}

std::vector<Case> views_of_rows() {
  std::vector<Case> cases;
  for (Case c : views()) {
    if (c.w_layout == WLayout::vh && !c.grad_w_layout) cases.push_back(c);
    if (c.x_layout != XLayout::shifted && c.x_layout != XLayout::padded) continue;
    c.name += "_in_place";
    c.in_place = true;
    cases.push_back(c);
  }
  return cases;
}

class SoftmaxCrossEntropy final : public TestOperatorOf<softmax_cross_entropy::Operator> {
 public:
  std::vector<CaseGroup> groups() const override {
    return {{"sizes", kept(sizes(), [](const Case& c) { return c.w_layout == WLayout::vh; })},
            {"types", types_of_rows()},
            {"options", options(*this)},
            {"data", data()},
            {"views", views_of_rows()},
            {"streamed", streamed()},
            {"targets", soft_targets()},
            {"target_options", target_options()}};
  }
  std::vector<Case> interpreted() const override {
    auto cases = interpreted_of_every_loss(*this);
    cases = shrunk(cases);
    for (Case c : kept(streamed(), [](const Case& c) {
           return ends_with_any(c.name, {"plain_f32_in_place", "plain_bf16_in_place"});
         })) {
      c.b = 2;
      c.v = 1100;  // two blocks of 4 lanes and a tail
      cases.push_back(c);
    }
    return cases;
  }

  oracle::Problem make_problem(const Case& c) const override {
    Numbers numbers(c.seed);
    oracle::Problem p = empty_problem(c);
    make_logits(c, p, numbers);
    add_labels(c, p, numbers, [&](std::int64_t row) {
      for (std::int64_t j = 0; j < p.v; ++j) p.logits[index(row * p.v + j)] = std::nan("");
    });
    add_loss_inputs(c, p, numbers);
    return p;
  }

  std::vector<double> oracle::Problem::*own_values(std::string_view) const override {
    return &oracle::Problem::logits;
  }
  ArrayMemory own_memory(const Case& c, const RowLayout& rows, std::string_view) const override {
    return {c.x_type, rows.x_strides};
  }
  ArrayMemory gradient_memory(const Case& c, const RowLayout& rows,
                              std::string_view) const override {
    // A gradient must not overlap itself, so a broadcast row has a dense one.
    const bool dense = c.x_layout == XLayout::broadcast;
    return {c.grad_x_type.value_or(c.x_type), dense ? Dims{} : rows.x_strides};
  }
  std::vector<JudgedGradient> judged() const override {
    return {{"grad_logits", &oracle::Gradients::grad_logits, &GradientTolerance::grad_logits,
             JudgedGradient::By::elements}};
  }

  bool multiplies(const Case&, DType) const override { return false; }
  std::string types_of(const Case& c) const override { return to_string(c.x_type); }
  std::string layout_of(const Case&) const override { return "rows"; }
};

}  // namespace

template <>
const TestOperator& test_operator<softmax_cross_entropy::Operator>() {
  static const SoftmaxCrossEntropy op;
  return op;
}

}  // namespace tessera::test
