// SPDX-License-Identifier: Apache-2.0
// The oracle against central differences, against itself cut into shards, and against cases small
// enough for pencil and paper. tests/oracle_edges_test.cpp has the edge cases.
#include "reference/oracle/oracle.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "tests/support/test_operator.hpp"

namespace tessera {
namespace {

using oracle::Problem;

/// Which options a generated problem uses.
struct Combination {
  const test::TestOperator* op = &test::test_operator<linear_cross_entropy::Operator>();
  bool cap = false, scale = false, smoothing = false, class_weight = false, weight = false,
       z_loss = false, dlse = false, ignored = false;
  test::Targets targets = test::Targets::labels;
  Reduction reduction = Reduction::mean;

  std::string name() const {
    std::string text = op->name();
    const std::pair<bool, const char*> flags[] = {
        {cap, " cap"},       {scale, " scale"},    {smoothing, " smoothing"},
        {weight, " weight"}, {z_loss, " z_loss"},  {class_weight, " class_weight"},
        {dlse, " dlse"},     {ignored, " ignored"}};
    for (const auto& [on, word] : flags) text += on ? word : "";
    if (targets == test::Targets::pairs) text += " pairs";
    if (targets == test::Targets::dense) text += " dense";
    return text + (reduction == Reduction::mean  ? " mean"
                   : reduction == Reduction::sum ? " sum"
                                                 : " none");
  }
};

std::vector<double> normal(std::mt19937& random, std::int64_t count, double spread) {
  std::normal_distribution<double> distribution(0.0, spread);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = distribution(random);
  return values;
}

Problem make_problem(const Combination& c, unsigned seed) {
  std::mt19937 random(seed);
  Problem p;
  p.b = 4;
  p.h = 3;
  p.v = 5;
  test::Case extents;
  extents.b = p.b;
  extents.h = p.h;
  extents.v = p.v;
  for (const auto& input : c.op->inputs()) {
    const auto numbers = c.op->values(input.name);
    if (test::is_of_every_loss(input.name) || numbers == nullptr) continue;
    p.*numbers = normal(random, c.op->extents(extents, input.shape).product(), 1.0);
  }
  p.labels = {3, 0, 3, 4};
  if (c.ignored) p.labels[1] = p.options.ignore_index;
  if (c.weight) p.weight = {1.5, 0.7, -0.4, 0.0};
  if (c.class_weight) p.class_weight = {0.5, 2.0, 0.0, 1.25, 3.0};
  p.dloss = c.reduction == Reduction::none ? normal(random, p.b, 1.0) : std::vector<double>{-1.7};
  if (c.dlse) p.dlse = normal(random, p.b, 1.0);
  p.options.reduction = c.reduction;
  if (c.cap) p.options.logit_soft_cap = 2.0f;
  if (c.scale) p.options.logit_scale = 0.6f;
  if (c.smoothing) p.options.label_smoothing = 0.2f;
  if (c.z_loss) p.options.logsumexp_weight = 0.3f;
  if (c.targets == test::Targets::pairs) {
    const auto none = p.options.ignore_index;
    p.k = 3;
    p.target_indices = {3, 1, 4, 0, none, none, none, 2, 3, 4, 0, 1};
    p.target_probs = {0.5, 0.25, 0.25, 0.6, 7.0, 7.0, 7.0, 1.0, 0.0, 0.2, 0.3, 0.1};
    if (c.ignored) p.target_indices[3] = none;
    p.labels.clear();
  } else if (c.targets == test::Targets::dense) {
    std::uniform_real_distribution<double> uniform(0.0, 0.5);
    for (std::int64_t i = 0; i < p.b * p.v; ++i) p.targets.push_back(uniform(random));
    p.labels.clear();
  }
  return p;
}

/// What `backward` differentiates.
double objective(const test::TestOperator* op, const Problem& p) {
  const auto values = op->forward_by_oracle(p);
  double result = 0.0;
  for (std::size_t i = 0; i < values.loss.size(); ++i) result += p.dloss[i] * values.loss[i];
  for (std::size_t i = 0; i < p.dlse.size(); ++i) {
    if (!oracle::is_ignored(p, static_cast<std::int64_t>(i))) result += p.dlse[i] * values.lse[i];
  }
  return result;
}

void expect_derivative(const test::TestOperator* op, Problem& p, std::vector<double>& parameter,
                       const std::vector<double>& gradient, const std::string& what) {
  ASSERT_EQ(parameter.size(), gradient.size()) << what;
  // Step h leaves h^2 f'''/6 ~ 1e-10 of truncation and 2^-53 |f| / h ~ 1e-11 of rounding for the
  // magnitudes here (|f| < 50, third derivatives < 50); 1e-8 is well above both, and far below
  // what a wrong term does (1e-3 and more).
  const double step = 1e-5;
  const double tolerance = 1e-8;
  for (std::size_t i = 0; i < parameter.size(); ++i) {
    const double kept = parameter[i];
    parameter[i] = kept + step;
    const double above = objective(op, p);
    parameter[i] = kept - step;
    const double below = objective(op, p);
    parameter[i] = kept;
    const double numeric = (above - below) / (2 * step);
    EXPECT_LE(std::abs(gradient[i] - numeric), tolerance * std::max(1.0, std::abs(numeric)))
        << what << "[" << i << "] is " << gradient[i] << ", the difference quotient " << numeric;
  }
}

/// Calls `body(gradient, where)` with each gradient and where the oracle's gradients have it.
template <class Body>
void for_each_gradient(const test::TestOperator* op, const Body& body) {
  const auto judged = op->judged();
  for (const auto& gradient : op->gradients()) {
    const auto known = std::find_if(judged.begin(), judged.end(), [&](const auto& one) {
      return std::string_view(one.name) == gradient.name;
    });
    ASSERT_NE(known, judged.end()) << gradient.name << " is not judged";
    body(gradient, known->expected);
  }
}

void for_each_combination(const std::function<void(const Combination&)>& body) {
  for (const test::TestOperator* op : test::test_operators()) {
    for (unsigned bits = 0; bits < 256; ++bits) {
      for (auto reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
        const auto on = [&](unsigned bit) { return (bits >> bit & 1u) != 0; };
        for (const auto targets :
             {test::Targets::labels, test::Targets::pairs, test::Targets::dense}) {
          body({op, on(0), on(1), on(2), on(3), on(4), on(5), on(6), on(7), targets, reduction});
        }
      }
    }
  }
}

TEST(Oracle, gradients_are_the_difference_quotients_under_every_combination_of_options) {
  int combinations = 0;
  for_each_combination([&](const Combination& c) {
    ++combinations;
    Problem p = make_problem(c, 1000u + static_cast<unsigned>(combinations));
    const auto gradients = c.op->backward_by_oracle(p);
    for_each_gradient(c.op, [&](const operators::Gradient& gradient, auto where) {
      expect_derivative(c.op, p, p.*c.op->values(c.op->input_of(gradient).name), gradients.*where,
                        c.name() + ": " + gradient.name);
    });
  });
  EXPECT_EQ(combinations, 3 * 768 * static_cast<int>(test::test_operators().size()));
}

// The same sums in another order: 2^-53 times a few dozen terms.
constexpr double rounding = 1e-13;

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], rounding * std::max(1.0, std::abs(expected[i])))
        << what << "[" << i << "]";
  }
}

/// Whether a shard has its columns of an input alone, whose last axis they are.
bool has_columns(const operators::Input& input) {
  const int rank = input.shape.rank();
  return rank > 0 && input.shape.axis(rank - 1) == 'V';
}

/// Columns [begin, end) of a whole problem as one shard.
Problem shard_of(const test::TestOperator* op, const Problem& whole, std::int64_t begin,
                 std::int64_t end) {
  Problem shard = whole;
  shard.v = end - begin;
  shard.options.vocab_offset = begin;
  shard.options.vocab_size_total = whole.v;
  const auto columns = [&](const std::vector<double>& matrix, std::int64_t rows) {
    std::vector<double> cut;
    for (std::int64_t row = 0; row < rows && !matrix.empty(); ++row) {
      const auto first = matrix.begin() + row * whole.v;
      cut.insert(cut.end(), first + begin, first + end);
    }
    return cut;
  };
  for (const auto& input : op->inputs()) {
    if (!has_columns(input)) continue;
    auto& values = shard.*op->values(input.name);
    values = columns(values, static_cast<std::int64_t>(values.size()) / whole.v);
  }
  return shard;
}

TEST(Oracle, shards_make_up_the_whole) {
  for_each_combination([](const Combination& c) {
    if (c.targets != test::Targets::labels) return;  // a shard takes labels
    const Problem whole = make_problem(c, 77);
    const auto values = c.op->forward_by_oracle(whole);
    const auto gradients = c.op->backward_by_oracle(whole);
    for (std::int64_t begin = 0, end = 2; begin < whole.v; begin = end, end = whole.v) {
      Problem shard = shard_of(c.op, whole, begin, end);
      const auto part = c.op->forward_by_oracle(shard);
      EXPECT_TRUE(part.loss.empty());
      for (std::int64_t row = 0; row < whole.b; ++row) {
        const auto i = static_cast<std::size_t>(row);
        if (whole.labels[i] == whole.options.ignore_index) {
          EXPECT_EQ(part.max[i], -INFINITY);
          EXPECT_EQ(part.sum[i], 0.0);
          continue;
        }
        const double* logits = values.logits.data() + row * whole.v;
        double max = -INFINITY, sum = 0, class_logit = 0, class_sum = 0, exp_logit = 0;
        for (auto j = begin; j < end; ++j) max = std::max(max, logits[j]);
        for (auto j = begin; j < end; ++j) {
          const double weight =
              c.class_weight ? whole.class_weight[static_cast<std::size_t>(j)] : 1.0;
          sum += std::exp(logits[j] - max);
          class_sum += weight;
          class_logit += weight * (logits[j] - max);
          exp_logit += std::exp(logits[j] - max) * (logits[j] - max);
        }
        EXPECT_NEAR(part.max[i], max, rounding * 10);
        EXPECT_NEAR(part.sum[i], sum, rounding * 10);
        EXPECT_NEAR(part.class_sum[i], class_sum, rounding * 10);
        EXPECT_NEAR(part.class_logit[i], class_logit, rounding * 100);
        EXPECT_NEAR(part.exp_logit[i], exp_logit, rounding * 10);
        EXPECT_EQ(part.argmax_value[i], part.max[i]);
        EXPECT_NEAR(logits[part.argmax[i]], max, rounding * 10);
        const auto label = whole.labels[i];
        if (label >= begin && label < end) {
          EXPECT_NEAR(part.label_logit[i], logits[label], rounding * 10);
        } else {
          EXPECT_EQ(part.label_logit[i], -INFINITY);
        }
      }
      shard.max = values.max;
      shard.sum = values.sum;
      const auto part_gradients = c.op->backward_by_oracle(shard);
      const Problem expected = [&] {  // cut the whole's gradients as the whole's inputs were cut
        Problem p = whole;
        for_each_gradient(c.op, [&](const operators::Gradient& gradient, auto where) {
          p.*c.op->values(c.op->input_of(gradient).name) = gradients.*where;
        });
        return shard_of(c.op, p, begin, end);
      }();
      for_each_gradient(c.op, [&](const operators::Gradient& gradient, auto where) {
        if (!has_columns(c.op->input_of(gradient))) return;
        expect_near(part_gradients.*where, expected.*c.op->values(c.op->input_of(gradient).name),
                    c.name() + ": " + gradient.name);
      });
    }
  });
}

TEST(Oracle, grad_x_of_the_whole_is_the_sum_over_shards) {
  Problem whole = make_problem({.smoothing = true, .class_weight = true, .z_loss = true}, 5);
  const auto values = oracle::forward(whole);
  std::vector<double> sum(whole.x.size(), 0.0);
  for (std::int64_t column = 0; column < whole.v; ++column) {
    Problem shard =
        shard_of(&test::test_operator<linear_cross_entropy::Operator>(), whole, column, column + 1);
    shard.max = values.max;
    shard.sum = values.sum;
    const auto part = oracle::backward(shard).grad_x;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  expect_near(sum, oracle::backward(whole).grad_x, "grad_x");
}

/// Two words with p = 1/4 and 3/4.
Problem quarter() {
  Problem p;
  p.b = 1;
  p.h = -1;
  p.v = 2;
  p.logits = {0.0, std::log(3.0)};
  p.labels = {0};
  return p;
}

const double ln4 = std::log(4.0);
const double ln4_3 = std::log(4.0 / 3.0);

TEST(OracleByHand, two_words) {
  const auto values = oracle::forward(quarter());
  expect_near(values.loss, {ln4}, "loss");
  expect_near(values.lse, {ln4}, "lse");
  expect_near(values.label_logprob, {-ln4}, "label_logprob");
  expect_near(values.entropy, {0.25 * ln4 + 0.75 * ln4_3}, "entropy");
  expect_near(values.z_loss, {0.0}, "z_loss");
  expect_near(values.max, {std::log(3.0)}, "max");
  expect_near(values.sum, {4.0 / 3.0}, "sum");
  EXPECT_EQ(values.argmax, std::vector<std::int64_t>{1});
  expect_near(oracle::backward(quarter()).grad_logits, {-0.75, 0.75}, "grad_logits");
}

TEST(OracleByHand, z_loss) {
  Problem p = quarter();
  p.options.logsumexp_weight = 0.5f;
  p.weight = {3.0};
  const auto values = oracle::forward(p);
  expect_near(values.loss, {ln4 + 0.5 * ln4 * ln4}, "loss");  // the weight cancels in the mean
  expect_near(values.z_loss, {1.5 * ln4 * ln4}, "z_loss");
  expect_near(oracle::backward(p).grad_logits, {(1 + ln4) * 0.25 - 1, (1 + ln4) * 0.75},
              "grad_logits");
}

TEST(OracleByHand, smoothing_with_class_weights) {
  Problem p = quarter();
  p.options.label_smoothing = 0.5f;
  p.options.reduction = Reduction::sum;
  p.class_weight = {2.0, 6.0};
  // (1 - eps) c_y nll + eps / V (2 * 2 ln2 + 6 * ln(4/3))
  expect_near(oracle::forward(p).loss, {ln4 + 0.25 * (2 * ln4 + 6 * ln4_3)}, "loss");
  // a = 0.5 * 2 + 0.25 * 8 = 3
  expect_near(oracle::backward(p).grad_logits, {3 * 0.25 - 1 - 0.5, 3 * 0.75 - 1.5}, "grad_logits");
}

TEST(OracleByHand, soft_cap_and_scale) {
  Problem p = quarter();
  p.options.logit_soft_cap = 2.0f;
  p.options.logit_scale = 0.5f;
  const double t = std::tanh(0.25 * std::log(3.0));  // the second logit is 2 t
  const double lse = std::log(1 + std::exp(2 * t));
  const double p1 = std::exp(2 * t - lse);
  expect_near(oracle::forward(p).loss, {lse}, "loss");
  expect_near(oracle::backward(p).grad_logits, {-0.5 * p1, 0.5 * p1 * (1 - t * t)}, "grad_logits");
}

TEST(OracleByHand, mean_divides_by_weight_times_class_weight) {
  Problem p = quarter();
  p.b = 3;
  p.logits = {0.0, std::log(3.0), 0.0, std::log(3.0), 9.0, 9.0};
  p.labels = {0, 1, -100};
  p.weight = {2.0, -1.0, 5.0};
  p.class_weight = {1.0, 0.5};
  // 2 * 1 * ln4 - 1 * 0.5 * ln(4/3) over 2 * 1 - 1 * 0.5
  expect_near(oracle::forward(p).loss, {(2 * ln4 - 0.5 * ln4_3) / 1.5}, "loss");
  expect_near(oracle::backward(p).grad_logits,
              {2 * -0.75 / 1.5, 2 * 0.75 / 1.5, -0.5 * 0.25 / 1.5, 0.5 * 0.25 / 1.5, 0, 0},
              "grad_logits");
}

TEST(OracleByHand, linear_layer_of_one_row) {
  Problem p;
  p.b = 1;
  p.h = 1;
  p.v = 2;
  p.x = {2.0};
  p.w = {0.0, 0.5 * std::log(3.0)};
  p.bias = {1.0, 1.0};
  p.labels = {1};
  expect_near(oracle::forward(p).lse, {1 + ln4}, "lse");
  const auto gradients = oracle::backward(p);
  expect_near(gradients.grad_bias, {0.25, -0.25}, "grad_bias");
  expect_near(gradients.grad_w, {0.5, -0.5}, "grad_w");
  expect_near(gradients.grad_x, {-0.125 * std::log(3.0)}, "grad_x");
}

}  // namespace
}  // namespace tessera
