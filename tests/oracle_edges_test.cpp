// SPDX-License-Identifier: Apache-2.0
// The oracle on the edge cases of the design's table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/oracle/oracle.hpp"

namespace tessera {
namespace {

using oracle::Problem;
using oracle::Values;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Three rows, two hidden, four words; nothing special.
Problem plain(Reduction reduction = Reduction::none) {
  Problem p;
  p.b = 3;
  p.h = 2;
  p.v = 4;
  p.x = {1.0, -0.5, 0.25, 2.0, -1.0, 0.5};
  p.w = {0.5, -1.0, 0.75, 0.25, 1.0, 0.5, -0.25, -0.75};
  p.bias = {0.1, -0.2, 0.3, 0.0};
  p.labels = {2, 0, 3};
  p.options.reduction = reduction;
  return p;
}

std::vector<double> row_of(const std::vector<double>& matrix, std::size_t row, std::size_t width) {
  const auto first = matrix.begin() + static_cast<std::ptrdiff_t>(row * width);
  return {first, first + static_cast<std::ptrdiff_t>(width)};
}

bool all_nan(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

TEST(OracleEdges, an_ignored_row_is_zero_and_never_read) {
  for (auto reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    Problem p = plain(reduction);
    p.options.logsumexp_weight = 0.1f;
    p.dlse = {1.0, nan_value, 2.0};
    p.weight = {1.0, nan_value, 2.0};
    p.labels[1] = -100;
    p.x[2] = nan_value;
    p.x[3] = infinity;
    const auto values = oracle::forward(p);
    for (const auto* field :
         {&values.lse, &values.z_loss, &values.label_logprob, &values.entropy}) {
      EXPECT_EQ((*field)[1], 0.0);
      EXPECT_TRUE(all_finite(*field));
    }
    EXPECT_EQ(values.argmax[1], -1);
    EXPECT_TRUE(all_finite(values.loss));
    if (reduction == Reduction::none) {
      EXPECT_EQ(values.loss[1], 0.0);
    }

    Problem without = p;  // the row left out altogether
    without.b = 2;
    without.x = {1.0, -0.5, -1.0, 0.5};
    without.labels = {2, 3};
    without.weight = without.dlse = {1.0, 2.0};
    const auto gradients = oracle::backward(p);
    const auto expected = oracle::backward(without);
    EXPECT_EQ(row_of(gradients.grad_x, 1, 2), std::vector<double>(2, 0.0));
    for (std::size_t i = 0; i < expected.grad_w.size(); ++i) {
      EXPECT_NEAR(gradients.grad_w[i], expected.grad_w[i], 1e-15);
    }
    for (std::size_t i = 0; i < expected.grad_bias.size(); ++i) {
      EXPECT_NEAR(gradients.grad_bias[i], expected.grad_bias[i], 1e-15);
    }
  }
}

TEST(OracleEdges, an_ignored_row_stays_zero_where_w_is_not_finite) {
  Problem p = plain();
  p.labels[1] = -100;
  p.w[0] = infinity;
  EXPECT_EQ(row_of(oracle::backward(p).grad_x, 1, 2), std::vector<double>(2, 0.0));
}

TEST(OracleEdges, a_class_that_is_the_ignore_index_does_not_count) {
  Problem p = plain(Reduction::mean);
  p.options.ignore_index = 2;
  EXPECT_EQ(oracle::forward(p).lse[0], 0.0);
}

TEST(OracleEdges, a_bad_label_spoils_its_own_row_alone) {
  for (std::int64_t label : {std::int64_t{-1}, std::int64_t{4}, std::int64_t{1} << 40}) {
    Problem p = plain();
    const auto good = oracle::forward(p);
    p.labels[1] = label;
    const auto values = oracle::forward(p);
    EXPECT_EQ(values.argmax[1], -1);
    for (const auto field :
         {&Values::loss, &Values::lse, &Values::label_logprob, &Values::entropy, &Values::z_loss}) {
      EXPECT_TRUE(std::isnan((values.*field)[1]));
      EXPECT_EQ((values.*field)[0], (good.*field)[0]);
      EXPECT_EQ((values.*field)[2], (good.*field)[2]);
    }

    p.x[2] = nan_value;
    const auto gradients = oracle::backward(p);
    p.labels[1] = -100;
    const auto ignored = oracle::backward(p);
    EXPECT_TRUE(all_nan(row_of(gradients.grad_x, 1, 2)));
    EXPECT_EQ(row_of(gradients.grad_x, 2, 2), row_of(ignored.grad_x, 2, 2));
    EXPECT_EQ(gradients.grad_w, ignored.grad_w);
    EXPECT_EQ(gradients.grad_bias, ignored.grad_bias);
  }
}

TEST(OracleEdges, a_bad_label_makes_the_reduced_loss_nan_and_leaves_the_denominator) {
  Problem p = plain(Reduction::mean);
  p.labels[1] = 4;
  EXPECT_TRUE(all_nan(oracle::forward(p).loss));
  const auto gradients = oracle::backward(p);
  p.labels[1] = -100;
  EXPECT_EQ(gradients.grad_w, oracle::backward(p).grad_w);
  p.labels[1] = 4;
  p.options.reduction = Reduction::sum;
  EXPECT_TRUE(all_nan(oracle::forward(p).loss));
}

TEST(OracleEdges, a_nan_or_inf_logit_spoils_its_own_row) {
  for (double value : {nan_value, infinity}) {
    Problem p = plain();
    p.options.logsumexp_weight = 0.1f;
    const auto good = oracle::forward(p);
    const auto good_gradients = oracle::backward(p);
    p.x[2] = value;  // row 1; w[0, :] has both signs
    const auto values = oracle::forward(p);
    for (const auto* field :
         {&values.loss, &values.lse, &values.z_loss, &values.label_logprob, &values.entropy}) {
      EXPECT_TRUE(std::isnan((*field)[1]));
      EXPECT_TRUE(std::isfinite((*field)[0]));
    }
    EXPECT_EQ(values.loss[0], good.loss[0]);
    EXPECT_EQ(values.loss[2], good.loss[2]);
    const auto gradients = oracle::backward(p);
    EXPECT_TRUE(all_nan(row_of(gradients.grad_x, 1, 2)));
    EXPECT_EQ(row_of(gradients.grad_x, 0, 2), row_of(good_gradients.grad_x, 0, 2));
    EXPECT_TRUE(all_nan(gradients.grad_w));
    EXPECT_TRUE(all_nan(gradients.grad_bias));
  }
}

TEST(OracleEdges, masked_words_have_probability_zero) {
  Problem p = plain();
  p.options.logsumexp_weight = 0.1f;
  p.bias[1] = -infinity;
  Problem narrow = p;  // the same problem without the masked word
  narrow.v = 3;
  narrow.w = {0.5, 0.75, 0.25, 1.0, -0.25, -0.75};
  narrow.bias = {0.1, 0.3, 0.0};
  narrow.labels = {1, 0, 2};
  const auto values = oracle::forward(p);
  const auto expected = oracle::forward(narrow);
  EXPECT_EQ(values.loss, expected.loss);
  EXPECT_EQ(values.lse, expected.lse);
  EXPECT_EQ(values.entropy, expected.entropy);
  const auto gradients = oracle::backward(p);
  const auto expected_x = oracle::backward(narrow).grad_x;
  EXPECT_EQ(gradients.grad_bias[1], 0.0);
  for (std::size_t i = 0; i < expected_x.size(); ++i) {
    EXPECT_NEAR(gradients.grad_x[i], expected_x[i], 1e-15);
  }
}

TEST(OracleEdges, a_masked_label_costs_infinity_but_its_gradient_is_finite) {
  Problem p = plain();
  p.bias[2] = -infinity;
  const auto values = oracle::forward(p);
  EXPECT_EQ(values.loss[0], infinity);
  EXPECT_EQ(values.label_logprob[0], -infinity);
  EXPECT_TRUE(std::isfinite(values.loss[1]));
  EXPECT_TRUE(all_finite(oracle::backward(p).grad_x));
  EXPECT_EQ(oracle::backward(p).grad_bias[2], -1.0);
}

TEST(OracleEdges, smoothing_over_a_masked_word_costs_infinity_unless_its_class_weighs_nothing) {
  Problem p = plain();
  p.bias[1] = -infinity;
  p.options.label_smoothing = 0.1f;
  EXPECT_EQ(oracle::forward(p).loss, std::vector<double>(3, infinity));
  p.class_weight = {1.0, 0.0, 1.0, 1.0};
  const auto values = oracle::forward(p);
  EXPECT_TRUE(all_finite(values.loss));
  EXPECT_TRUE(all_finite(values.class_logit));
  EXPECT_TRUE(all_finite(oracle::backward(p).grad_w));
}

TEST(OracleEdges, a_row_of_nothing_but_masked_words) {
  Problem p = plain();
  p.bias.assign(4, -infinity);
  const auto values = oracle::forward(p);
  EXPECT_EQ(values.lse, std::vector<double>(3, -infinity));
  EXPECT_EQ(values.max, std::vector<double>(3, -infinity));
  EXPECT_EQ(values.sum, std::vector<double>(3, 0.0));
  EXPECT_TRUE(all_nan(values.loss));
  EXPECT_TRUE(all_nan(values.entropy));
  EXPECT_EQ(values.argmax, std::vector<std::int64_t>(3, 0));
  EXPECT_TRUE(all_nan(oracle::backward(p).grad_x));
}

TEST(OracleEdges, a_wholly_masked_shard_is_neutral) {
  Problem p = plain();
  p.bias.assign(4, -infinity);
  p.options.vocab_offset = 4;
  p.options.vocab_size_total = 8;
  const auto part = oracle::forward(p);
  EXPECT_EQ(part.sum, std::vector<double>(3, 0.0));
  EXPECT_EQ(part.exp_logit, std::vector<double>(3, 0.0));
  EXPECT_EQ(part.argmax, std::vector<std::int64_t>(3, 4));
  p.max = {1.0, 2.0, 3.0};
  p.sum = {1.5, 1.0, 2.0};
  EXPECT_EQ(oracle::backward(p).grad_w, std::vector<double>(8, 0.0));
}

TEST(OracleEdges, the_soft_cap_saturates) {
  Problem p = plain();
  p.options.logit_soft_cap = 3.0f;
  p.bias = {infinity, -infinity, 1e30, 0.0};
  const auto values = oracle::forward(p);
  EXPECT_TRUE(all_finite(values.loss));
  EXPECT_EQ(values.max, std::vector<double>(3, 3.0));
  EXPECT_EQ(values.argmax, std::vector<std::int64_t>(3, 0));  // columns 0 and 2 tie
  const auto gradients = oracle::backward(p);
  EXPECT_EQ(gradients.grad_bias[0], 0.0);
  EXPECT_EQ(gradients.grad_bias[2], 0.0);
}

TEST(OracleEdges, huge_and_confident_logits) {
  Problem p;
  p.b = 3;
  p.h = -1;
  p.v = 3;
  p.logits = {1e4, 1e4, -1e4, -3e4, -3e4, -3e4, 1e4, 1e4 - 40, -1e4};
  p.labels = {0, 1, 0};
  p.options.reduction = Reduction::none;
  const auto values = oracle::forward(p);
  EXPECT_NEAR(values.loss[0], std::log(2.0), 1e-15);
  EXPECT_NEAR(values.loss[1], std::log(3.0), 1e-15);
  // lse - logit would be 0 here: e^-40 is lost beside 1e4.
  EXPECT_NEAR(values.loss[2], std::log1p(std::exp(-40.0)), 1e-15);
  EXPECT_TRUE(all_finite(oracle::backward(p).grad_logits));
}

TEST(OracleEdges, ties_go_to_the_lowest_index_of_the_f32_logits) {
  Problem p;
  p.b = 2;
  p.h = -1;
  p.v = 4;
  p.logits = {-1, 2, 2, 1, 0, 1, 1 + 1e-12, -5};
  p.labels = {0, 0};
  EXPECT_EQ(oracle::forward(p).argmax, (std::vector<std::int64_t>{1, 1}));
}

TEST(OracleEdges, a_denominator_of_zero) {
  Problem p = plain(Reduction::mean);
  p.labels = {2, 0, -100};
  p.weight = {1.0, -1.0, 3.0};
  p.options.logsumexp_weight = 0.5f;
  EXPECT_EQ(oracle::forward(p).loss, std::vector<double>{0.0});
  EXPECT_EQ(oracle::backward(p).grad_w, std::vector<double>(8, 0.0));
  p.dlse = {1.0, 0.0, 0.0};  // stays
  const auto bias = oracle::backward(p).grad_bias;
  double sum = 0.0;
  for (double g : bias) sum += g;
  EXPECT_NEAR(sum, 1.0, 1e-15);
}

TEST(OracleEdges, all_rows_ignored) {
  for (auto reduction : {Reduction::mean, Reduction::sum}) {
    Problem p = plain(reduction);
    p.labels.assign(3, -100);
    p.x.assign(6, nan_value);
    EXPECT_EQ(oracle::forward(p).loss, std::vector<double>{0.0});
    EXPECT_EQ(oracle::backward(p).grad_x, std::vector<double>(6, 0.0));
    EXPECT_EQ(oracle::backward(p).grad_w, std::vector<double>(8, 0.0));
  }
}

TEST(OracleEdges, a_weight_of_zero_is_an_ordinary_row) {
  Problem p = plain();
  p.weight = {0.0, 1.0, 1.0};
  p.dlse = {1.0, 0.0, 0.0};
  const auto values = oracle::forward(p);
  EXPECT_EQ(values.loss[0], 0.0);
  EXPECT_NE(values.lse[0], 0.0);
  EXPECT_NE(oracle::backward(p).grad_x[0], 0.0);
}

TEST(OracleEdges, no_rows) {
  for (auto reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    Problem p = plain(reduction);
    p.b = 0;
    p.x.clear();
    p.labels.clear();
    const auto values = oracle::forward(p);
    EXPECT_EQ(values.loss, std::vector<double>(reduction == Reduction::none ? 0 : 1, 0.0));
    EXPECT_EQ(oracle::backward(p).grad_w, std::vector<double>(8, 0.0));
    p.h = -1;  // softmax
    EXPECT_TRUE(oracle::backward(p).grad_logits.empty());
  }
}

TEST(OracleEdges, no_hidden_units_leaves_the_bias) {
  Problem p = plain();
  p.h = 0;
  p.x.clear();
  p.w.clear();
  const auto values = oracle::forward(p);
  EXPECT_EQ(row_of(values.logits, 1, 4), p.bias);
  EXPECT_TRUE(oracle::backward(p).grad_x.empty());
  EXPECT_TRUE(all_finite(oracle::backward(p).grad_bias));
  p.bias.clear();
  for (double loss : oracle::forward(p).loss) EXPECT_NEAR(loss, std::log(4.0), 1e-15);
}

TEST(OracleEdges, wrong_sizes_are_refused_by_name) {
  Problem p = plain();
  p.weight = {1.0};
  EXPECT_THROW(
      {
        try {
          oracle::forward(p);
        } catch (const std::invalid_argument& error) {
          EXPECT_STREQ(error.what(), "oracle: weight has 1 elements, expected 3");
          throw;
        }
      },
      std::invalid_argument);
}

}  // namespace
}  // namespace tessera
