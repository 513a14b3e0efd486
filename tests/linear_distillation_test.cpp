// SPDX-License-Identifier: Apache-2.0
// linear_distillation: `eigen` against `reference`, which is the oracle in double, over options,
// types, layouts, teachers, passes and schedules. Both against PyTorch: goldens_test.
#include "tessera/linear_distillation.hpp"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/distillation.hpp"

namespace tessera::distillation {
namespace {

TEST(LinearDistillation, EveryDivergenceTemperatureAndShare) {
  for (const Divergence divergence : divergences) {
    for (const float temperature : {1.0f, 2.5f, 0.5f}) {
      for (const float alpha : {0.0f, 0.3f, 1.0f}) {
        for (const float beta : {0.0f, 0.2f, 0.9f, 1.0f}) {
          if (divergence != Divergence::jsd && beta != 0.2f) continue;
          Problem p;
          p.options = {.divergence = divergence,
                       .beta = beta,
                       .temperature = temperature,
                       .alpha = alpha,
                       .loss = {.logsumexp_weight = 0.01f}};
          SCOPED_TRACE(testing::Message() << to_string(divergence) << " T " << temperature
                                          << " alpha " << alpha << " beta " << beta);
          expect_agrees(p);
        }
      }
    }
  }
}

TEST(LinearDistillation, OptionsOfBothLayers) {
  for (const Divergence divergence : divergences) {
    for (const auto reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
      Problem p;
      p.options = {.divergence = divergence,
                   .beta = 0.4f,
                   .temperature = 1.5f,
                   .alpha = 0.6f,
                   .teacher_logit_scale = 1.3f,
                   .teacher_logit_soft_cap = 4.0f,
                   .loss = {.logsumexp_weight = 0.02f,
                            .logit_scale = 0.8f,
                            .logit_soft_cap = 5.0f,
                            .label_smoothing = 0.1f,
                            .reduction = reduction}};
      SCOPED_TRACE(to_string(divergence));
      expect_agrees(p);
    }
  }
}

TEST(LinearDistillation, TeachersTypesAndLayouts) {
  for (const Divergence divergence : divergences) {
    for (const bool from_logits : {false, true}) {
      for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
        for (const bool vh : {false, true}) {
          Problem p;
          p.from_logits = from_logits;
          p.x_type = p.w_type = type;
          p.teacher_type = type == DType::f32 ? DType::bf16 : DType::f32;
          p.w_is_vh = vh;
          p.teacher_w_is_vh = vh;
          p.has_bias = !vh;
          p.options.divergence = divergence;
          p.options.temperature = 2.0f;
          SCOPED_TRACE(testing::Message() << to_string(divergence) << (from_logits ? " logits" : "")
                                          << " " << to_string(type) << (vh ? " vh" : " hv"));
          expect_agrees(p);
        }
      }
    }
  }
}

/// Chunks of rows, ranges of columns, a second look that forms the logits again: all that a small
/// workspace makes of a call.
TEST(LinearDistillation, EverySchedule) {
  for (const Divergence divergence : divergences) {
    for (const DType type : {DType::f32, DType::bf16}) {
      Problem p;
      p.b = 97;
      p.v = 1503;
      p.x_type = p.w_type = type;
      p.options.divergence = divergence;
      p.options.temperature = 2.0f;
      const Arrays arrays(p);
      for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
        Context context({.threads = 3, .host_only = true});
        auto inputs = arrays.inputs(pass);
        std::vector<float> statistics(static_cast<std::size_t>(2 * p.b));
        if (pass == Pass::backward) inputs.statistics = View::host(statistics.data(), {p.b, 2});
        auto execution = p.execution;
        execution.implementation = "eigen";
        const auto plan = ld::plan(context, pass, inputs, {}, {}, p.options, execution);
        const auto least = plan.minimum_workspace_bytes;
        EXPECT_LT(least, plan.workspace_bytes);
        for (const std::int64_t bytes : {least, 2 * least, 4 * least, 16 * least}) {
          p.execution.workspace_bytes = static_cast<std::size_t>(bytes);
          SCOPED_TRACE(testing::Message() << to_string(divergence) << " " << bytes << " bytes");
          expect_agrees(p, {pass});
        }
        p.execution.workspace_bytes = static_cast<std::size_t>(least - 4096);
        EXPECT_THROW(run_on("eigen", p, arrays, pass), Error);
        p.execution.workspace_bytes.reset();
      }
    }
  }
}

TEST(LinearDistillation, SizesAndThreads) {
  for (const Divergence divergence : divergences) {
    for (const auto& [b, h, v, g] : {std::tuple{1, 1, 1, 1},
                                     {1, 5, 2, 3},
                                     {5, 1, 17, 40},
                                     {3, 64, 4097, 8},
                                     {0, 4, 9, 4},
                                     {200, 16, 33, 16},
                                     {2, 0, 7, 3}}) {
      Problem p;
      p.b = b;
      p.h = h;
      p.v = v;
      p.g = g;
      p.options.divergence = divergence;
      SCOPED_TRACE(testing::Message() << b << "x" << h << "x" << v << " teacher " << g);
      expect_agrees(p);
    }
  }
}

TEST(LinearDistillation, RowsWithoutATarget) {
  for (const Divergence divergence : divergences) {
    Problem p;
    p.has_labels = false;
    p.options.divergence = divergence;
    p.options.alpha = 1.0f;
    p.options.loss.logsumexp_weight = 0.1f;
    expect_agrees(p);
  }
}

/// Masked words of either, and rows that are no numbers.
TEST(LinearDistillation, WhatIsNotFinite) {
  for (const Divergence divergence : divergences) {
    for (const bool student : {false, true}) {
      Problem p;
      p.from_logits = true;
      p.options.divergence = divergence;
      p.options.loss.reduction = Reduction::none;
      p.options.alpha = student ? 0.5f : 0.0f;  // a share of 0 is absent, even of an infinite one
      p.spoil = [&](auto& x, auto& bias, auto& teacher) {
        // Words that no label names.
        if (student) bias[5] = bias[6] = -infinity;
        for (std::int64_t row = 0; row < p.b; ++row) {
          if (!student) teacher[static_cast<std::size_t>(row * p.v + 7)] = -infinity;
        }
        x[0] = std::nanf("");                                   // row 0
        teacher[static_cast<std::size_t>(p.v + 4)] = infinity;  // row 1
        x[static_cast<std::size_t>(3 * p.h)] = std::nanf("");   // row 3, which is ignored
      };
      SCOPED_TRACE(testing::Message() << to_string(divergence) << (student ? " student" : ""));
      const Arrays arrays(p);
      const auto expected = run_on("reference", p, arrays, Pass::value_and_grad);
      const auto actual = run_on("eigen", p, arrays, Pass::value_and_grad);
      for (const auto tensor : {&ld::Result::divergence, &ld::Result::target_entropy}) {
        expect_close("own output", actual.*tensor, expected.*tensor, f32_tolerance, least_value);
      }
      expect_close("loss", actual.loss, expected.loss, f32_tolerance, least_value);
      expect_close("lse", actual.lse, expected.lse, f32_tolerance, least_value);
      // Row by row: what is not a number spoils its own row alone.
      for (std::int64_t i = 0; i < p.b * p.h; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const float a = actual.grad_x.as<float>()[at], e = expected.grad_x.as<float>()[at];
        EXPECT_EQ(std::isfinite(a), std::isfinite(e)) << "row " << i / p.h;
      }
    }
  }
}

/// A teacher that is sure of a word that its student masks is infinitely far from it, also where
/// the student masks another word in another block of columns, of which nothing is left.
TEST(LinearDistillation, AnInfinityOfOneBlock) {
  constexpr std::int64_t v = 1100;
  std::vector<float> bias(v, 0.0f), teacher(v, -2000.0f);
  const std::vector<float> x = {0.0f}, w(v, 0.0f);
  teacher[3] = 0.0f;
  bias[3] = bias[1000] = -infinity;
  ld::Options options{.divergence = Divergence::forward_kl, .alpha = 1.0f};
  options.loss.wants.divergence = true;
  Context context({.host_only = true});
  for (const char* implementation : {"reference", "eigen"}) {
    const auto result = forward(context,
                                {.x = View::host(x.data(), {1, 1}),
                                 .w = View::host(w.data(), {1, v}),
                                 .bias = View::host(bias.data(), {v}),
                                 .teacher_logits = View::host(teacher.data(), {1, v})},
                                options, {.implementation = implementation});
    EXPECT_EQ(result.divergence.item(), infinity) << implementation;
  }
}

/// Statistics of another distribution, as a caller's own may be, are taken for the student's.
TEST(LinearDistillation, BackwardReadsWhatItIsGiven) {
  Problem p;
  const Arrays arrays(p);
  auto inputs = arrays.inputs(Pass::backward);
  const std::vector<float> lse(static_cast<std::size_t>(p.b), 9.0f);
  inputs.lse = lse;
  std::vector<ld::Result> results;
  for (const char* implementation : {"reference", "eigen"}) {
    Context context({.threads = 3, .host_only = true});
    ld::ExecutionOptions execution;
    execution.implementation = implementation;
    results.push_back(backward(context, inputs, p.options, execution));
  }
  expect_close("grad_w", results[1].grad_w, results[0].grad_w, f32_tolerance, least_gradient);
}

/// What forward saved saves backward its looks at all logits, and changes nothing else.
TEST(LinearDistillation, BackwardFromWhatForwardSaved) {
  for (const Divergence divergence : divergences) {
    for (const bool from_logits : {false, true}) {
      Problem p;
      p.is_saved = true;
      p.from_logits = from_logits;
      p.options.divergence = divergence;
      p.options.temperature = 1.5f;
      SCOPED_TRACE(to_string(divergence));
      expect_agrees(p, {Pass::backward});
      const Arrays arrays(p);
      auto inputs = arrays.inputs(Pass::backward);
      const std::vector<float> lse(static_cast<std::size_t>(5 * p.b), 1.0f);
      inputs.lse = View::host(lse.data(), {p.b});
      Context context({.host_only = true});
      ld::ExecutionOptions execution{.implementation = "eigen"};
      // Where logits do not wait between looks.
      execution.workspace_bytes =
          plan(context, Pass::backward, inputs, {}, {}, p.options, execution)
              .minimum_workspace_bytes;
      const auto formed = [&] {
        return cost_estimate(context, Pass::backward, inputs, {}, {}, p.options, execution)
            .executed_flops;
      };
      const auto again = formed();
      inputs.divergence_statistics = View::host(lse.data(), {p.b, 5});
      const std::int64_t teacher = from_logits ? 0 : p.g;
      const std::int64_t looks = divergence == Divergence::jsd ? 2 : 1;
      EXPECT_EQ(again - formed(), looks * 2 * p.b * p.v * (p.h + teacher));
    }
  }
}

/// What a call gives does not depend on how many threads there are, nor on its repetition.
TEST(LinearDistillation, SameBitsAgain) {
  Problem p;
  p.b = 61;
  p.v = 700;
  p.options.divergence = Divergence::jsd;
  const Arrays arrays(p);
  const auto first = run_on("eigen", p, arrays, Pass::value_and_grad);
  const auto again = run_on("eigen", p, arrays, Pass::value_and_grad);
  EXPECT_EQ(numbers_of(first.grad_w), numbers_of(again.grad_w));
  EXPECT_EQ(numbers_of(first.divergence), numbers_of(again.divergence));
}

/// At alpha 0 nothing is left of the teacher: linear_cross_entropy says the same.
TEST(LinearDistillation, WithoutAShareItIsLinearCrossEntropy) {
  Problem p;
  p.options.alpha = 0.0f;
  p.options.loss.label_smoothing = 0.2f;
  const Arrays arrays(p);
  const auto distilled = run_on("eigen", p, arrays, Pass::value_and_grad);
  const auto in = arrays.inputs(Pass::value_and_grad);
  Context context({.threads = 3, .host_only = true});
  const auto plain =
      linear_cross_entropy::value_and_grad(context,
                                           {.x = in.x,
                                            .labels = in.labels,
                                            .w = in.w,
                                            .bias = in.bias,
                                            .weight = in.weight,
                                            .dlse = in.dlse},
                                           p.options.loss, {.implementation = "eigen"});
  EXPECT_EQ(distilled.loss.item(), plain.loss.item());
  EXPECT_EQ(numbers_of(distilled.grad_x), numbers_of(plain.grad_x));
  EXPECT_EQ(numbers_of(distilled.grad_w), numbers_of(plain.grad_w));
}

TEST(LinearDistillation, CostCreditsBothLayers) {
  Problem p;
  const Arrays arrays(p);
  Context context({.host_only = true});
  const auto cost = ld::cost_estimate(context, Pass::value_and_grad,
                                      arrays.inputs(Pass::value_and_grad), {}, {}, p.options);
  EXPECT_EQ(cost.flops, 6 * p.b * p.h * p.v + 2 * p.b * p.g * p.v);
  EXPECT_GE(cost.executed_flops, cost.flops);
}

}  // namespace
}  // namespace tessera::distillation
