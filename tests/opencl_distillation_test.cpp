// SPDX-License-Identifier: Apache-2.0
// What a call of linear_distillation reports of its schedule on OpenCL: knobs that may be given
// back, and what is formed again. (That its numbers are right: matrix_test.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {
namespace ld = linear_distillation;

class OpenclDistillation : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!GetParam().starts_with("opencl.")) GTEST_SKIP() << "not on OpenCL";
  }

  static constexpr std::int64_t b = 200, h = 40, g = 24, v = 1501;

  static ld::Inputs inputs(Pass pass) {
    const auto shape = [](const Dims& extents) {
      return View::host(nullptr, DType::bf16, extents, {});
    };
    ld::Inputs in{.x = shape({b, h}),
                  .w = shape({h, v}),
                  .teacher_x = shape({b, g}),
                  .teacher_w = shape({g, v}),
                  .labels = View::host(nullptr, DType::i32, {b})};
    if (pass == Pass::backward) in.statistics = View::host(nullptr, DType::f32, {b, 2});
    return in;
  }
  static ld::Options options(ld::Divergence divergence) {
    ld::Options options{.divergence = divergence};
    options.loss.wants.grad_x = options.loss.wants.grad_w = true;
    return options;
  }
  static ld::ExecutionOptions execution(std::optional<std::size_t> bytes) {
    return {.implementation = GetParam(), .workspace_bytes = bytes};
  }
};

TEST_P(OpenclDistillation, WhatIsReportedCanBeGivenBack) {
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
    for (const auto divergence : {ld::Divergence::forward_kl, ld::Divergence::jsd}) {
      for (const std::size_t bytes : {std::size_t{1} << 19, std::size_t{1} << 26}) {
        SCOPED_TRACE(std::string(to_string(pass)) + ", " + to_string(divergence));
        auto how = execution(bytes);
        const auto first =
            ld::plan(shared_context(), pass, inputs(pass), {}, {}, options(divergence), how);
        how.knobs = first.dispatch.knobs;
        const auto again =
            ld::plan(shared_context(), pass, inputs(pass), {}, {}, options(divergence), how);
        EXPECT_EQ(again.dispatch.schedule, first.dispatch.schedule);
        EXPECT_EQ(again.workspace_bytes, first.workspace_bytes);
        for (auto& knob : how.knobs) {
          if (knob.name == "chunk_rows") knob.value += 1;
        }
        EXPECT_THROW(
            ld::plan(shared_context(), pass, inputs(pass), {}, {}, options(divergence), how), Error)
            << first.dispatch.schedule;
      }
    }
  }
}

/// FLOPs are credited once, and executed once for each look that forms the logits.
TEST_P(OpenclDistillation, LogitsThatDoNotWaitAreFormedAgain) {
  const std::int64_t logits = 2 * b * (h + g) * v, gradients = 4 * b * h * v;
  const auto executed = [&](Pass pass, ld::Divergence divergence, std::size_t bytes) {
    const auto cost = ld::cost_estimate(shared_context(), pass, inputs(pass), {}, {},
                                        options(divergence), execution(bytes));
    EXPECT_EQ(cost.flops, logits + (has_gradients(pass) ? gradients : 0));
    return cost.executed_flops;
  };
  constexpr std::size_t little = 3 << 18, much = 1 << 26;
  using enum ld::Divergence;
  EXPECT_EQ(executed(Pass::forward, forward_kl, little), logits);
  EXPECT_EQ(executed(Pass::forward, jsd, much), logits);
  // How little lets none of them wait depends on the width of tiles.
  bool formed_again = false;
  for (const std::size_t bytes : {little, little / 2, little / 3}) {
    const auto flops = executed(Pass::forward, jsd, bytes);
    EXPECT_TRUE(flops == logits || flops == 2 * logits) << flops << " with " << bytes;
    formed_again = formed_again || flops == 2 * logits;
  }
  EXPECT_TRUE(formed_again);
  EXPECT_EQ(executed(Pass::value_and_grad, forward_kl, much), logits + gradients);
  EXPECT_EQ(executed(Pass::value_and_grad, jsd, much), logits + gradients);
  EXPECT_EQ(executed(Pass::value_and_grad, forward_kl, little), 2 * logits + gradients);
  EXPECT_EQ(executed(Pass::backward, reverse_kl, little), 2 * logits + gradients);
  EXPECT_EQ(executed(Pass::value_and_grad, jsd, little), 3 * logits + gradients);
}

/// A layer without a column gives every word its bias, or the same probability.
TEST_P(OpenclDistillation, ATeacherOfNoWidth) {
  const std::vector<float> x = {0.5f, -1.0f, 2.0f, 0.25f},
                           w = {1.0f, -2.0f, 0.5f, 0.0f, 3.0f, 1.0f};
  ld::Options options{.alpha = 1.0f};
  options.loss.reduction = Reduction::sum;
  options.loss.wants.divergence = options.loss.wants.target_entropy = true;
  const auto run = [&](const std::string& implementation) {
    return ld::value_and_grad(shared_context(),
                              {.x = View::host(x.data(), {2, 2}),
                               .w = View::host(w.data(), {2, 3}),
                               .teacher_x = View::host(x.data(), {2, 0}),
                               .teacher_w = View::host(w.data(), {0, 3})},
                              options, {.implementation = implementation});
  };
  const auto expected = run("reference");
  const auto result = run(GetParam());
  for (std::size_t row = 0; row < 2; ++row) {
    EXPECT_NEAR(result.divergence.as<float>()[row], expected.divergence.as<float>()[row], 1e-6);
    EXPECT_NEAR(result.target_entropy.as<float>()[row], std::log(3.0f), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OpenclDistillation,
                         testing::ValuesIn(implementations_of<ld::Operator>()), [](const auto& i) {
                           std::string name = i.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpenclDistillation);

}  // namespace
}  // namespace tessera::test
