// SPDX-License-Identifier: Apache-2.0
// Calls of linear_distillation: the schedule that they report on OpenCL (knobs that may be given
// back, logits that are formed again), and the digits of divergences on every implementation.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace ld = linear_distillation;

class DistillationTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto& op = test_operator<ld::Operator>();
    if (const auto why = op.why_absent(shared_context(), GetParam())) GTEST_SKIP() << *why;
  }
};

class OpenclDistillation : public DistillationTest {
 protected:
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

/// Every implementation against the oracle, relative to each number itself. x picks rows of w, so
/// that logits are exact and all rounding is the divergence's own.
class DivergenceDigits : public DistillationTest {
 protected:
  static constexpr std::int64_t b = 40, v = 500;
  static constexpr std::int64_t first_near = 8, first_nearer = 12, first_sure = 28;

  /// Rows of noise; a student that is nearly its teacher; one that is sure of a word, its teacher
  /// of another.
  DivergenceDigits() : student_(b * v), teacher_(b * v), x_(b * b) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    for (std::int64_t row = 0; row < b; ++row) {
      x_[index(row * b + row)] = 1.0f;
      for (std::int64_t word = 0; word < v; ++word) {
        const auto at = index(row * v + word);
        student_[at] = normal(random);
        teacher_[at] = normal(random);
        const float far = row < first_nearer ? 1e-3f : 1e-6f;
        if (row >= first_near) teacher_[at] = student_[at] + far * teacher_[at];
        if (row >= first_sure) teacher_[at] = -100.0f * std::abs(student_[at]);
        if (row >= first_sure) student_[at] = -500.0f;
      }
      if (row < first_sure) continue;
      student_[index(row * v + 7 * row)] = normal(random);
      teacher_[index(row * v + 3 * row)] = normal(random);
    }
  }

  ld::Result run(const std::string& implementation, const ld::Options& options) const {
    return ld::value_and_grad(shared_context(),
                              {.x = View::host(x_.data(), {b, b}),
                               .w = View::host(student_.data(), {b, v}),
                               .teacher_logits = View::host(teacher_.data(), {b, v})},
                              options, {.implementation = implementation});
  }
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  static ld::Options options(ld::Divergence divergence, float beta) {
    ld::Options options{.divergence = divergence, .beta = beta, .alpha = 1.0f};
    options.loss.reduction = Reduction::sum;
    options.loss.wants.divergence = options.loss.wants.grad_x = true;
    return options;
  }
  /// The norm of a row of grad_x, without what w's rows of -500 add, which all but cancels.
  static double norm(const HostTensor& tensor, std::int64_t row, const HostTensor* less = nullptr) {
    double squares = 0.0;
    for (std::int64_t i = row * b; i < row * b + first_sure; ++i) {
      const double value = tensor.as<float>()[index(i)];
      const double off = less != nullptr ? less->as<float>()[index(i)] : 0.0;
      squares += (value - off) * (value - off);
    }
    return std::sqrt(squares);
  }

 private:
  std::vector<float> student_, teacher_, x_;
};

/// 16 roundings of 2^-24 of each logarithm; where the two are near, of logits of size 4, of which
/// 1e-3 is left.
TEST_P(DivergenceDigits, OfMixtures) {
  for (const float beta : {1e-6f, 1e-3f, 0.5f, 0.999f, 1.0f - 0x1p-20f}) {
    const auto expected = run("reference", options(ld::Divergence::jsd, beta));
    const auto actual = run(GetParam(), options(ld::Divergence::jsd, beta));
    for (std::int64_t row = 0; row < b; ++row) {
      if (row >= first_nearer && row < first_sure) continue;  // nothing but rounding is left
      SCOPED_TRACE(testing::Message() << "beta " << beta << " row " << row);
      const bool is_near = row >= first_near && row < first_sure;
      const double tolerance = is_near ? 0x1p-10 : 0x1p-20;
      const double value = expected.divergence.as<float>()[index(row)];
      EXPECT_NEAR(actual.divergence.as<float>()[index(row)], value, tolerance * value);
      if (row >= first_sure) continue;  // a gradient of 0
      EXPECT_LE(norm(actual.grad_x, row, &expected.grad_x), tolerance * norm(expected.grad_x, row));
    }
  }
}

/// A divergence is never below 0, and has no slope where the student is sure, however far the
/// teacher is: what rounding leaves of a difference of large numbers is neither.
TEST_P(DivergenceDigits, OfRowsThatAreEqualOrSure) {
  for (const auto divergence : {ld::Divergence::forward_kl, ld::Divergence::reverse_kl}) {
    SCOPED_TRACE(to_string(divergence));
    const auto result = run(GetParam(), options(divergence, 0.5f));
    for (std::int64_t row = first_near; row < b; ++row) {
      EXPECT_GE(result.divergence.as<float>()[index(row)], 0.0f);
      if (row < first_sure || divergence == ld::Divergence::forward_kl) continue;
      EXPECT_EQ(norm(result.grad_x, row), 0.0) << "row " << row;
    }
  }
}

/// The logits of DivergenceDigits are f32.
bool multiplies_f32(const std::string& name) { return !is_matrix_unit(name); }

INSTANTIATE_TEST_SUITE_P(All, DivergenceDigits,
                         testing::ValuesIn(implementations_of<ld::Operator>(multiplies_f32)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DivergenceDigits);

INSTANTIATE_TEST_SUITE_P(All, OpenclDistillation,
                         testing::ValuesIn(implementations_of<ld::Operator>(is_on_opencl)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpenclDistillation);

}  // namespace
}  // namespace tessera::test
