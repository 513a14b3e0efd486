// SPDX-License-Identifier: Apache-2.0
// The fused loss on the tile machine against the oracle: chips, types, layouts, options, edges.
#include <gtest/gtest.h>

#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

constexpr DType f32 = DType::f32, bf16_type = DType::bf16;

Context on_chip(const std::string& chip) {
  return Context({.device = chip, .warning_handler = [](const std::string&) {}});
}

/// Several blocks in every direction, the last one of the vocabulary ragged, and odd.
Case base(const std::string& name) {
  Case c;
  c.name = "tile_loss_" + name;
  c.b = 256;
  c.h = 256;
  c.v = 301;
  c.block_sizes = lce::BlockSizes{128, 128, 128};
  c.bias = true;
  c.options.logsumexp_weight = 1e-2f;
  return c;
}

void expect_right(Context& context, const Case& c,
                  std::initializer_list<Pass> passes = {
                      Pass::forward, Pass::backward, Pass::value_and_grad, Pass::forward_partial}) {
  for (const Pass pass : passes) {
    EXPECT_TRUE(run_case(context, "tpu_tile", pass, c)) << c.name << " was refused";
  }
}

TEST(TileLoss, EveryChipTypeAndLayout) {
  for (const std::string chip : {"v3", "v4", "v5e", "v5p", "v6e", "v7"}) {
    Context context = on_chip(chip);
    for (const DType x : {f32, bf16_type}) {
      for (const DType w : {f32, bf16_type}) {
        if (chip == "v3" && (x != f32 || w != f32)) continue;
        for (const WLayout layout : {WLayout::hv, WLayout::vh}) {
          // Chips are judged by one layout each where types are mixed.
          if (x != w && (layout == WLayout::hv) != (chip == "v5p")) continue;
          Case c = base(std::string("types_") + to_string(x) + "_" + to_string(w) +
                        (layout == WLayout::hv ? "_hv" : "_vh"));
          c.x_type = x;
          c.w_type = w;
          c.w_layout = layout;
          expect_right(context, c, {Pass::forward, Pass::backward});
        }
      }
    }
  }
}

TEST(TileLoss, Options) {
  Context context = on_chip("v5p");
  const auto check = [&](const std::string& name, auto change) {
    Case c = base(name);
    change(c);
    expect_right(context, c);
  };
  check("everything", [](Case& c) {
    c.class_weight = true;
    c.weight = Weights::signed_and_zero;
    c.dlse = Cotangent::given;
    c.dloss = Cotangent::given;
    c.labels = Labels::some_ignored;
    c.options.label_smoothing = 0.2f;
    c.options.logit_soft_cap = 6.0f;
    c.options.logit_scale = 0.7f;
    c.options.reduction = Reduction::none;
  });
  check("smoothing", [](Case& c) {
    c.options.label_smoothing = 0.1f;
    c.w_layout = WLayout::hv;
    c.bias = false;
  });
  check("scale", [](Case& c) {
    c.options.logit_scale = -1.5f;
    c.options.reduction = Reduction::sum;
    c.label_type = DType::i64;
  });
  check("side_types", [](Case& c) {
    c.side_type = DType::f16;
    c.class_weight = true;
    c.weight = Weights::positive;
    c.grad_x_type = DType::f16;
    c.grad_w_type = bf16_type;
    c.grad_bias_type = bf16_type;
    c.accumulate = true;
    c.strided_outputs = true;
  });
  check("cancelling_weights", [](Case& c) { c.weight = Weights::cancelling; });
  check("from_lse", [](Case& c) { c.from_lse = true; });
  check("ignored", [](Case& c) { c.labels = Labels::some_ignored; });
  check("all_ignored", [](Case& c) { c.labels = Labels::all_ignored; });
  check("no_outputs", [](Case& c) {
    c.outputs = 0;
    c.gradients = grad_bias_bit;
  });
  check("argmax_of_equals", [](Case& c) {
    c.data = Data::equal;
    c.bias = false;
  });
  for (const unsigned gradient : {grad_x_bit, grad_w_bit}) {
    check("one_gradient_" + std::to_string(gradient), [&](Case& c) { c.gradients = gradient; });
  }
}

/// f32 gradients in whole blocks, which the kernel writes into the caller's memory where it may: a
/// chip of one core without sums over cores, where every row counts.
TEST(TileLoss, EachGradientIsAddedToByItself) {
  for (const std::string chip : {"v5p", "v6e"}) {
    Context context = on_chip(chip);
    for (const Labels labels : {Labels::uniform, Labels::some_ignored}) {
      for (unsigned mask = 0; mask <= all_gradients; ++mask) {
        Case c = base("mix_of_accumulation");
        c.v = 384;
        c.labels = labels;
        if (labels == Labels::some_ignored) c.name += "_ignored";
        c.accumulate = mask;
        SCOPED_TRACE(chip + ", gradients " + std::to_string(mask));
        expect_right(context, c, {Pass::backward, Pass::value_and_grad});
      }
    }
  }
}

TEST(TileLoss, HardNumbers) {
  Context context = on_chip("v5p");
  const std::pair<const char*, Data> all[] = {{"dominating", Data::dominating},
                                              {"all_negative", Data::all_negative},
                                              {"large_offset", Data::large_offset},
                                              {"large_spread", Data::large_spread},
                                              {"masked", Data::masked},
                                              {"masked_label", Data::masked_label},
                                              {"masked_row", Data::masked_row},
                                              {"nan_rows", Data::nan_rows},
                                              {"large_bias", Data::large_bias},
                                              {"nan_bias", Data::nan_bias},
                                              {"one_hot_row", Data::one_hot_row}};
  for (const auto& [name, data] : all) {
    Case c = base(name);
    c.data = data;
    c.options.reduction = Reduction::none;
    c.labels = Labels::some_ignored;  // a block is filled up with rows of zeros
    expect_right(context, c);
    if (data != Data::masked && data != Data::nan_rows) continue;
    c.name += "_smoothed";
    c.options.label_smoothing = 0.1f;
    c.class_weight = true;
    expect_right(context, c, {Pass::forward, Pass::value_and_grad});
  }
}

TEST(TileLoss, Views) {
  Context context = on_chip("v6e");
  for (const XLayout layout : {XLayout::padded, XLayout::column, XLayout::shifted,
                               XLayout::leading3, XLayout::broadcast}) {
    Case c = base("x_layout_" + std::to_string(static_cast<int>(layout)));
    c.x_layout = layout;
    c.x_type = bf16_type;
    if (layout == XLayout::leading3) c.b = 384;  // three axes take a multiple of six
    expect_right(context, c, {Pass::value_and_grad});
  }
  for (const WLayout layout : {WLayout::hv_padded, WLayout::vh_padded, WLayout::strided}) {
    Case c = base("w_layout_" + std::to_string(static_cast<int>(layout)));
    c.w_layout = layout;
    c.w_type = bf16_type;
    expect_right(context, c, {Pass::value_and_grad});
    c.name += "_other_gradient";
    c.grad_w_layout = layout == WLayout::hv_padded ? WLayout::vh : WLayout::hv;
    c.grad_w_type = f32;
    expect_right(context, c, {Pass::backward});
  }
}

TEST(TileLoss, Sizes) {
  struct Size {
    std::int64_t b, h, v;
    lce::BlockSizes blocks;
  };
  const Size sizes[] = {{0, 128, 5, {128, 128, 128}},      {128, 0, 130, {128, 128, 128}},
                        {128, 128, 1, {128, 128, 256}},    {128, 128, 128, {128, 128, 128}},
                        {384, 128, 1000, {384, 128, 256}}, {256, 384, 641, {256, 128, 128}},
                        {512, 128, 256, {128, 128, 128}},  {1024, 128, 300, {1024, 128, 256}}};
  for (const std::string chip : {"v5e", "v5p"}) {
    Context context = on_chip(chip);
    for (const Size& size : sizes) {
      for (const WLayout layout : {WLayout::hv, WLayout::vh}) {
        Case c = base("size_" + std::to_string(size.b) + "x" + std::to_string(size.h) + "x" +
                      std::to_string(size.v) + (layout == WLayout::hv ? "_hv" : "_vh"));
        c.b = size.b;
        c.h = size.h;
        c.v = size.v;
        c.block_sizes = size.blocks;
        c.w_layout = layout;
        expect_right(context, c, {Pass::forward, Pass::value_and_grad});
      }
    }
  }
}

/// No probability is above 1 where another order of sums has left a maximum below a logit.
TEST(TileLoss, AMaximumBelowALogit) {
  Context context = on_chip("v5p");
  constexpr std::int64_t n = 128;
  std::vector<float> x(n * n, 0.0f), w(n * n, 0.0f), grad_x(n * n, -1.0f), statistics(2 * n, 1.0f);
  const std::vector<std::int32_t> labels(n, 1);
  // The logits of a row are (1e4, -1e4, 0, 0, ...).
  w[0] = 1.0f;
  w[1] = -1.0f;
  for (std::size_t row = 0; row < static_cast<std::size_t>(n); ++row) {
    x[row * static_cast<std::size_t>(n)] = 1e4f;
    statistics[2 * row] = 1e4f * (1.0f - 0x1p-10f);
  }
  for (const float smoothing : {0.0f, 1e-6f}) {
    lce::Gradients gradients;
    gradients.grad_x = MutableView::host(grad_x.data(), {n, n});
    lce::ExecutionOptions execution;
    execution.implementation = "tpu_tile";
    execution.block_sizes = lce::BlockSizes{n, n, n};
    lce::backward(context,
                  {.x = View::host(x.data(), {n, n}),
                   .labels = labels,
                   .w = View::host(w.data(), {n, n}),
                   .statistics = View::host(statistics.data(), {n, 2})},
                  gradients, {.label_smoothing = smoothing, .reduction = Reduction::sum}, execution)
        .wait();
    EXPECT_NEAR(grad_x[0], 2.0f, 1e-5f);  // p is (1, 0, ...), so that dz is (1, -1, 0, ...)
  }
}

TEST(TileLoss, Reports) {
  Context context = on_chip("TPU v6e");
  EXPECT_FALSE(context.has_device());
  Case c = base("report");
  const Expected& e = expected_of(c);
  Arguments arguments(context, c, e.problem);
  lce::ExecutionOptions execution;
  execution.implementation = "tpu_tile";
  execution.block_sizes = c.block_sizes;
  const auto result =
      lce::value_and_grad(context, arguments.inputs<lce::Operator>(), {}, execution);
  EXPECT_EQ(result.dispatch.implementation, "tpu_tile");
  EXPECT_EQ(result.dispatch.device, "v6e on the tile machine");
  EXPECT_EQ(result.dispatch.schedule, "forward_then_two_stage_backward");
  EXPECT_EQ(result.dispatch.block_source, BlockSource::caller);
  EXPECT_EQ(result.dispatch.block_sizes,
            (std::vector<NamedValue>{
                {"b_block_size", 128}, {"h_block_size", 128}, {"v_block_size", 128}}));
  const auto plan = lce::plan(context, Pass::value_and_grad, arguments.inputs<lce::Operator>(), {},
                              {}, {}, execution);
  EXPECT_EQ(plan.workspace_bytes, result.dispatch.workspace_bytes);
  execution.workspace_bytes = static_cast<std::size_t>(plan.workspace_bytes - 1);
  EXPECT_THROW(lce::value_and_grad(context, arguments.inputs<lce::Operator>(), {}, execution),
               Error);
  execution.workspace_bytes.reset();
  const auto cost = lce::cost_estimate(context, Pass::value_and_grad,
                                       arguments.inputs<lce::Operator>(), {}, {}, {}, execution);
  EXPECT_EQ(cost.flops, 6 * c.b * c.h * c.v);
  EXPECT_EQ(cost.executed_flops, 8 * c.b * c.h * c.v);
  // Only by name.
  for (const auto& info : lce::implementations()) {
    EXPECT_FALSE(info.name == "tpu_tile" && info.by_default);
  }
  EXPECT_EQ(
      lce::forward(context, arguments.inputs<lce::Operator>(Pass::forward)).dispatch.implementation,
      "eigen");
}

}  // namespace
}  // namespace tessera::test
