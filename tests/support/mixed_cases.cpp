// SPDX-License-Identifier: Apache-2.0
// Problems with many options at once: one of them shows more pairs of options than a case that
// changes one thing. pairs.cpp chooses which of them run.
#include "tests/support/cases.hpp"
#include "tests/support/random.hpp"

namespace tessera::test {
namespace {

DType any_type(Random& random) { return random.one_of({DType::f32, DType::bf16, DType::f16}); }

void mix_inputs(Case& c, Random& random, bool has_matrices, bool has_teacher) {
  c.x_type = any_type(random);
  c.w_type = has_matrices ? any_type(random) : c.x_type;
  c.side_type = any_type(random);
  c.label_type = random.one_of({DType::i32, DType::i64});
  c.place = random.one_of({Place::host, Place::device});
  c.class_weight = !has_teacher && random.once_in(2);
  c.bias = random.once_in(2);
  if (has_matrices) {
    c.w_layout = random.one_of(
        {WLayout::hv, WLayout::vh, WLayout::hv_padded, WLayout::vh_padded, WLayout::strided});
  }
  if (random.once_in(2)) {
    c.x_layout = random.one_of({XLayout::padded, XLayout::column, XLayout::shifted,
                                XLayout::leading3, XLayout::vector, XLayout::broadcast});
  }
  if (c.x_layout == XLayout::shifted || c.x_layout == XLayout::leading3) c.b = 36;
  if (c.x_layout == XLayout::vector) c.b = 1;
  c.targets = random.one_of({Targets::labels, Targets::one_pair, Targets::pairs, Targets::dense});
  const bool one_row = c.x_layout == XLayout::vector || c.x_layout == XLayout::broadcast;
  if (c.targets != Targets::dense && !one_row && random.once_in(2)) c.labels = Labels::some_ignored;
  c.weight = random.one_of({Weights::none, Weights::positive, Weights::signed_and_zero});
}

void mix_options(Case& c, Random& random) {
  LossOptions& o = c.options;
  o.logsumexp_weight = random.one_of({0.0f, 1e-2f});
  o.logit_scale = random.one_of({1.0f, 0.7f, 1.5f});
  o.logit_soft_cap = random.one_of({0.0f, 3.0f});
  o.label_smoothing = random.one_of({0.0f, 0.2f, 1.0f});
  o.reduction = random.one_of({Reduction::mean, Reduction::sum, Reduction::none});
  c.strided_outputs = random.once_in(3);
  if (random.once_in(4)) c.outputs = 0;
}

void mix_gradients(Case& c, Random& random, bool has_matrices, bool has_filter) {
  c.dloss = random.one_of({Cotangent::none, Cotangent::given});
  c.dlse = random.one_of({Cotangent::none, Cotangent::given});
  if (c.options.reduction == Reduction::none && random.once_in(3)) {
    c.dloss = c.dlse = Cotangent::stride0;
  }
  c.from_lse = random.once_in(3);
  if (random.once_in(2)) c.grad_x_type = any_type(random);
  if (random.once_in(2))
    c.accumulate = random.one_of({unsigned{all_gradients}, all_gradients & ~1u});
  if (!has_matrices) {
    c.accumulate = c.accumulate == all_gradients;
    c.in_place = c.grad_x_type.value_or(c.x_type) == c.x_type && c.accumulate == 0u &&
                 c.x_layout != XLayout::broadcast && random.once_in(2);
    return;
  }
  if (random.once_in(2)) c.grad_w_type = any_type(random);
  c.grad_bias_type = any_type(random);
  if (random.once_in(2)) {
    c.grad_w_layout = random.one_of({WLayout::hv, WLayout::vh_padded, WLayout::strided});
  }
  if (random.once_in(4)) c.gradients = random.one_of({grad_x_bit, grad_w_bit});
  if (random.once_in(4) && c.bias) c.gradients = grad_bias_bit;
  if (random.once_in(2)) c.dz_dtype = DType::f32;
  if (has_filter && random.once_in(4)) c.gradient_filter_eps = 0x1p-7f;
}

}  // namespace

std::vector<Case> mixed(const TestOperator& op) {
  const auto& inputs = op.inputs();
  const auto has = [&](std::string_view name) {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const operators::Input& input) { return input.name == name; });
  };
  const bool has_matrices = has("w"), has_teacher = has("teacher_x");
  std::vector<Case> cases;
  for (std::size_t i = 0; i < 400; ++i) {
    Random random(i);
    Case c = base("mixed_" + std::to_string(i));
    c.teaching = has_teacher ? i : 0;
    mix_inputs(c, random, has_matrices, has_teacher);
    mix_options(c, random);
    mix_gradients(c, random, has_matrices, has_matrices && !has_teacher);
    cases.push_back(c);
  }
  return cases;
}

}  // namespace tessera::test
