// SPDX-License-Identifier: Apache-2.0
// The oracle's divergences from a teacher, against central differences and cases small enough for
// pencil and paper. PyTorch's word on them is among tests/goldens.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "reference/oracle/oracle.hpp"

namespace tessera::oracle {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr Divergence divergences[] = {Divergence::forward_kl, Divergence::reverse_kl,
                                      Divergence::jsd};

std::vector<double> normal(std::mt19937& random, std::int64_t count) {
  std::normal_distribution<double> distribution;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = distribution(random);
  return values;
}

Problem make_problem(Divergence divergence, unsigned seed) {
  std::mt19937 random(seed);
  Problem p;
  p.b = 4;
  p.h = 3;
  p.v = 5;
  p.x = normal(random, p.b * p.h);
  p.w = normal(random, p.h * p.v);
  p.bias = normal(random, p.v);
  p.labels = {3, -100, 0, 4};
  p.weight = {1.5, 0.7, -0.4, 2.0};
  p.dloss = {-1.7};
  p.options.logsumexp_weight = 0.2f;
  Distillation& d = p.distillation;
  d.given = true;
  d.divergence = divergence;
  p.teacher_h = 2;
  p.teacher_x = normal(random, p.b * p.teacher_h);
  p.teacher_w = normal(random, p.teacher_h * p.v);
  d.temperature = 1.7;
  d.alpha = 0.3;
  d.beta = 0.4;
  return p;
}

double objective(const Problem& p) { return p.dloss[0] * forward(p).loss[0]; }

/// Step h leaves h^2 f'''/6 ~ 1e-10 of truncation and 2^-53 |f| / h ~ 1e-11 of rounding; a wrong
/// term is off by 1e-3 and more.
void expect_derivative(Problem p, std::vector<double> Problem::*parameter,
                       const std::vector<double>& gradient, const char* what) {
  const double step = 1e-5;
  ASSERT_EQ((p.*parameter).size(), gradient.size()) << what;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double kept = (p.*parameter)[i];
    (p.*parameter)[i] = kept + step;
    const double above = objective(p);
    (p.*parameter)[i] = kept - step;
    const double below = objective(p);
    (p.*parameter)[i] = kept;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * step), 1e-8) << what << "[" << i << "]";
  }
}

TEST(OracleDistillation, gradients_are_the_difference_quotients) {
  for (const Divergence divergence : divergences) {
    for (const double alpha : {0.0, 0.3, 1.0}) {
      for (const double temperature : {1.0, 2.5}) {
        for (const double beta : {0.0, 0.4, 1.0}) {
          for (const bool capped : {false, true}) {
            Problem p = make_problem(divergence, 11);
            p.distillation.alpha = alpha;
            p.distillation.temperature = temperature;
            p.distillation.beta = beta;
            if (capped) {
              p.options.logit_soft_cap = 2.0f;
              p.options.logit_scale = 0.6f;
              p.options.label_smoothing = 0.2f;
              p.distillation.logit_soft_cap = 3.0;
              p.distillation.logit_scale = 1.4;
            }
            SCOPED_TRACE(testing::Message() << static_cast<int>(divergence) << " alpha " << alpha
                                            << " T " << temperature << " beta " << beta);
            const Gradients g = backward(p);
            expect_derivative(p, &Problem::x, g.grad_x, "x");
            expect_derivative(p, &Problem::w, g.grad_w, "w");
            expect_derivative(p, &Problem::bias, g.grad_bias, "bias");
          }
        }
      }
    }
  }
}

Distillation of(Divergence divergence, double beta = 0.5, double temperature = 1.0) {
  Distillation d;
  d.given = true;
  d.divergence = divergence;
  d.beta = beta;
  d.temperature = temperature;
  return d;
}

TEST(OracleDistillation, two_words_by_hand) {
  // q = (3/4, 1/4) and p = (1/2, 1/2).
  const double student[] = {std::log(3.0), 0.0}, teacher[] = {5.0, 5.0};
  const double forward_kl = 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25);
  const double reverse_kl = 0.75 * std::log(0.75 / 0.5) + 0.25 * std::log(0.25 / 0.5);
  EXPECT_NEAR(divergence_of(of(Divergence::forward_kl), student, teacher, 2).value, forward_kl,
              1e-15);
  EXPECT_NEAR(divergence_of(of(Divergence::reverse_kl), student, teacher, 2).value, reverse_kl,
              1e-15);
  // m = 0.25 p + 0.75 q = (11/16, 5/16).
  const double m0 = 0.6875, m1 = 0.3125;
  const double jsd = 0.25 * (0.5 * std::log(0.5 / m0) + 0.5 * std::log(0.5 / m1)) +
                     0.75 * (0.75 * std::log(0.75 / m0) + 0.25 * std::log(0.25 / m1));
  const auto third = divergence_of(of(Divergence::jsd, 0.25), student, teacher, 2);
  EXPECT_NEAR(third.value, jsd, 1e-15);
  EXPECT_NEAR(third.target_entropy, std::log(2.0), 1e-15);
  // At T = 2 the student is (sqrt 3, 1) / (1 + sqrt 3).
  const double q0 = std::sqrt(3.0) / (1.0 + std::sqrt(3.0));
  const auto warm = divergence_of(of(Divergence::forward_kl, 0.5, 2.0), student, teacher, 2);
  EXPECT_NEAR(warm.value, 0.5 * std::log(0.5 / q0) + 0.5 * std::log(0.5 / (1.0 - q0)), 1e-15);
  EXPECT_NEAR(warm.slope[0], q0 - 0.5, 1e-15);
}

TEST(OracleDistillation, a_student_that_is_its_teacher_has_nothing_to_learn) {
  const double logits[] = {1.0, -3.0, 0.25, 7.0};
  for (const Divergence divergence : divergences) {
    const auto d = divergence_of(of(divergence, 0.3, 1.5), logits, logits, 4);
    EXPECT_NEAR(d.value, 0.0, 1e-15);
    for (const double slope : d.slope) EXPECT_NEAR(slope, 0.0, 1e-15);
  }
}

TEST(OracleDistillation, the_ends_of_jsd_are_the_two_kl) {
  const double student[] = {1.0, -3.0, 0.25}, teacher[] = {0.5, 2.0, -1.0};
  for (const auto& [beta, other] :
       {std::pair{0.0, Divergence::forward_kl}, std::pair{1.0, Divergence::reverse_kl}}) {
    const auto end = divergence_of(of(Divergence::jsd, beta), student, teacher, 3);
    const auto kl = divergence_of(of(other), student, teacher, 3);
    EXPECT_EQ(end.value, kl.value);
    EXPECT_EQ(end.slope, kl.slope);
  }
}

/// A word that one of them masks: 0 log 0 is 0, and what is divided by 0 is infinite.
TEST(OracleDistillation, masked_words) {
  const double open[] = {1.0, -3.0, 0.25}, masked[] = {0.5, -infinity, -1.0};
  for (const Divergence divergence : divergences) {
    const auto both = divergence_of(of(divergence), masked, masked, 3);
    EXPECT_NEAR(both.value, 0.0, 1e-15);
    EXPECT_EQ(both.slope[1], 0.0);
  }
  // The teacher's 0 adds nothing to KL(p||q) and makes KL(q||p) infinite; the student's the other
  // way round. JSD is finite with either.
  const auto forward_open = divergence_of(of(Divergence::forward_kl), open, masked, 3);
  EXPECT_TRUE(std::isfinite(forward_open.value));
  EXPECT_GT(forward_open.slope[1], 0.0) << "q - 0";
  EXPECT_EQ(divergence_of(of(Divergence::forward_kl), masked, open, 3).value, infinity);
  EXPECT_EQ(divergence_of(of(Divergence::reverse_kl), open, masked, 3).value, infinity);
  EXPECT_TRUE(std::isfinite(divergence_of(of(Divergence::reverse_kl), masked, open, 3).value));
  EXPECT_TRUE(std::isfinite(divergence_of(of(Divergence::jsd), open, masked, 3).value));
  EXPECT_TRUE(std::isfinite(divergence_of(of(Divergence::jsd), masked, open, 3).value));
}

/// Without a target every row counts, and at alpha 1 nothing but divergence and z-loss is left.
TEST(OracleDistillation, rows_without_a_target) {
  Problem p = make_problem(Divergence::forward_kl, 5);
  p.distillation.alpha = 1.0;
  p.labels.clear();
  p.options.reduction = Reduction::none;
  p.dloss.assign(4, 1.0);
  const Values values = forward(p);
  const double t2 = 1.7 * 1.7;
  for (std::size_t row = 0; row < 4; ++row) {
    const double z =
        static_cast<double>(p.options.logsumexp_weight) * values.lse[row] * values.lse[row];
    EXPECT_NEAR(values.loss[row], p.weight[row] * (t2 * values.divergence[row] + z), 1e-13);
    EXPECT_GT(values.divergence[row], 0.0);
    EXPECT_EQ(values.label_logprob[row], 0.0);
  }
  p.options.reduction = Reduction::mean;
  p.dloss = {1.0};
  double total = 0.0;
  for (const double loss : values.loss) total += loss;
  EXPECT_NEAR(forward(p).loss[0], total / (1.5 + 0.7 - 0.4 + 2.0), 1e-13);
}

/// An infinite divergence spoils no loss that has no share of it.
TEST(OracleDistillation, a_share_of_zero_is_absent) {
  Problem p = make_problem(Divergence::reverse_kl, 5);
  p.distillation.alpha = 0.0;
  p.teacher_bias.assign(5, 0.0);
  p.teacher_bias[2] = -infinity;
  Problem plain = p;
  plain.distillation.given = false;
  EXPECT_DOUBLE_EQ(forward(p).loss[0], forward(plain).loss[0]);
  EXPECT_EQ(forward(p).divergence[0], infinity);
  EXPECT_EQ(backward(p).grad_w, backward(plain).grad_w);
}

/// Nor a gradient, where the weight of the row is 0.
TEST(OracleDistillation, a_row_of_weight_zero_has_no_gradient_of_an_infinite_divergence) {
  Problem p = make_problem(Divergence::reverse_kl, 5);
  p.teacher_bias.assign(5, 0.0);
  p.teacher_bias[2] = -infinity;
  p.weight[2] = 0.0;
  EXPECT_EQ(forward(p).divergence[2], infinity);
  const auto grad_x = backward(p).grad_x;
  for (std::size_t i = 6; i < 9; ++i) EXPECT_EQ(grad_x[i], 0.0);
}

TEST(OracleDistillation, an_ignored_row_is_zero_and_never_read) {
  Problem p = make_problem(Divergence::jsd, 7);
  p.teacher_x[2] = p.teacher_x[3] = std::nan("");
  p.options.reduction = Reduction::none;
  p.dloss.assign(4, 1.0);
  const Values values = forward(p);
  EXPECT_EQ(values.divergence[1], 0.0);
  EXPECT_EQ(values.target_entropy[1], 0.0);
  EXPECT_EQ(values.loss[1], 0.0);
  for (const double g : backward(p).grad_w) EXPECT_TRUE(std::isfinite(g));
}

}  // namespace
}  // namespace tessera::oracle
