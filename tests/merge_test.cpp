// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/sharded_layer.hpp"

/// Shards of the vocabulary: whatever their grouping, they combine to what one call says.
namespace tessera::test {
namespace {

/// Cuts the vocabulary five ways and merges the shards as a list, in pairs, and from the back.
void expect_any_grouping(ShardedLayer& layer) {
  const std::vector<std::vector<std::int64_t>> cuts = {{0, 61},
                                                       {0, 30, 61},
                                                       {0, 1, 60, 61},
                                                       {0, 16, 17, 18, 40, 61},
                                                       {0, 7, 14, 21, 28, 35, 42, 49, 56, 61}};
  const auto whole = lce::forward(layer.context, layer.inputs(0, ShardedLayer::V), layer.options,
                                  {.implementation = layer.implementation});
  for (const auto& cut : cuts) {
    std::vector<PartialResult> shards;
    for (std::size_t i = 0; i + 1 < cut.size(); ++i) {
      shards.push_back(layer.shard(cut[i], cut[i + 1]));
    }
    const auto inputs = layer.combine_inputs();
    expect_same(combine(shards, inputs, layer.total()), whole);

    auto backwards = shards;
    std::reverse(backwards.begin(), backwards.end());
    expect_same(combine(backwards, inputs, layer.total()), whole);

    while (shards.size() > 1) {  // a tree: neighbours in pairs
      std::vector<PartialResult> next;
      for (std::size_t i = 0; i < shards.size(); i += 2) {
        const auto count = std::min<std::size_t>(2, shards.size() - i);
        next.push_back(merge(std::span(shards).subspan(i, count)));
      }
      shards = std::move(next);
    }
    expect_same(combine(shards, inputs, layer.total()), whole);
  }
}

class Shards : public testing::TestWithParam<std::string> {
 protected:
  Shards() { layer_.implementation = GetParam(); }
  ShardedLayer layer_;
};

INSTANTIATE_TEST_SUITE_P(All, Shards, testing::ValuesIn(host_implementations()),
                         [](const auto& i) { return i.param; });

TEST_P(Shards, Plain) { expect_any_grouping(layer_); }

TEST_P(Shards, EveryOptionAndReduction) {
  layer_.options.label_smoothing = 0.2f;
  layer_.options.logsumexp_weight = 0.01f;
  layer_.options.logit_scale = 0.7f;
  layer_.options.logit_soft_cap = 4.0f;
  for (auto reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    layer_.options.reduction = reduction;
    expect_any_grouping(layer_);
  }
}

TEST_P(Shards, LargeLogitsDoNotCancel) {
  for (auto& value : layer_.x) value *= 1000.0f;
  layer_.options.label_smoothing = 0.1f;
  layer_.options.reduction = Reduction::none;
  const auto whole = lce::forward(layer_.context, layer_.inputs(0, ShardedLayer::V), layer_.options,
                                  {.implementation = layer_.implementation});
  const std::vector<PartialResult> shards = {layer_.shard(0, 20), layer_.shard(20, 61)};
  const auto merged = combine(shards, layer_.combine_inputs(), layer_.total());
  // Logits near 1e4 are rounded to f32 in a Partial: 1e4 * 2^-24 each, a few of them per loss.
  for (std::size_t i = 0; i < 9; ++i) {
    const float e = whole.loss.as<float>()[i];
    EXPECT_NEAR(merged.loss.as<float>()[i], e, 1e-5f * std::abs(e) + 5e-3f) << i;
  }
}

TEST_P(Shards, MaskedWordsAndWholeMaskedShards) {
  for (std::size_t word = 0; word < 20; ++word) layer_.bias[word] = -infinity;
  layer_.labels = {21, 60, 3, 30, 31, -100, 33, 44, 59};  // row 2: a masked label
  layer_.options.reduction = Reduction::none;
  expect_any_grouping(layer_);
  for (std::size_t word = 0; word < 20; ++word) layer_.class_weight[word] = 0.0f;
  layer_.options.label_smoothing = 0.3f;  // over masked words of class weight 0: finite
  expect_any_grouping(layer_);
  layer_.class_weight[7] = 1.0f;  // over a masked word that counts: +Inf
  expect_any_grouping(layer_);
  for (auto& value : layer_.bias) value = -infinity;  // nothing left: lse -Inf, loss NaN
  expect_any_grouping(layer_);
}

TEST_P(Shards, NaNAndInfinityStayInTheirRows) {
  layer_.x[0] = nan_value;
  layer_.options.reduction = Reduction::none;
  // argmax of a NaN row is unspecified, so that it is not asked for.
  layer_.options.wants.argmax = false;
  const auto whole = lce::forward(layer_.context, layer_.inputs(0, ShardedLayer::V), layer_.options,
                                  {.implementation = layer_.implementation});
  const std::vector<PartialResult> shards = {layer_.shard(0, 7), layer_.shard(7, 61)};
  const auto merged = combine(shards, layer_.combine_inputs(), layer_.total());
  EXPECT_TRUE(std::isnan(merged.loss.as<float>()[0]));
  EXPECT_TRUE(std::isnan(merged.lse.as<float>()[0]));
  expect_close(merged.loss, whole.loss, "loss");
  expect_close(merged.entropy, whole.entropy, "entropy");
}

TEST_P(Shards, AllRowsIgnored) {
  layer_.labels.assign(9, -100);
  layer_.x.assign(layer_.x.size(), nan_value);
  expect_any_grouping(layer_);
}

TEST_P(Shards, BackwardOfShardsIsBackwardOfTheWhole) {
  layer_.options.label_smoothing = 0.1f;
  layer_.options.logsumexp_weight = 0.01f;
  const lce::ExecutionOptions execution{.implementation = layer_.implementation};
  const auto whole = lce::value_and_grad(layer_.context, layer_.inputs(0, ShardedLayer::V),
                                         layer_.options, execution);
  const std::vector<PartialResult> shards = {layer_.shard(0, 20), layer_.shard(20, 61)};
  const auto merged = combine(shards, layer_.combine_inputs(), layer_.total());
  std::vector<float> grad_x(layer_.x.size(), 0.0f);
  const std::int64_t cuts[] = {0, 20, 61};
  for (int s = 0; s < 2; ++s) {
    auto inputs = layer_.inputs(cuts[s], cuts[s + 1]);
    inputs.statistics = merged.statistics.view();
    LossOptions options = layer_.total();
    options.vocab_offset = cuts[s];
    const auto part = lce::backward(layer_.context, inputs, options, execution);
    for (std::size_t i = 0; i < grad_x.size(); ++i) grad_x[i] += part.grad_x.as<float>()[i];
    for (std::int64_t h = 0; h < ShardedLayer::H; ++h) {
      for (std::int64_t v = cuts[s]; v < cuts[s + 1]; ++v) {
        const auto at = static_cast<std::size_t>(h * (cuts[s + 1] - cuts[s]) + v - cuts[s]);
        const auto whole_at = static_cast<std::size_t>(h * ShardedLayer::V + v);
        EXPECT_NEAR(part.grad_w.as<float>()[at], whole.grad_w.as<float>()[whole_at], 2e-5f);
      }
    }
  }
  for (std::size_t i = 0; i < grad_x.size(); ++i) {
    EXPECT_NEAR(grad_x[i], whole.grad_x.as<float>()[i], 2e-5f) << i;
  }
}

TEST(Merge, OneRowByHand) {
  // Logits {1, 3} and {2}, class weights {2, 0.5} and {1}.
  const Partial a{.max = 3.0f,
                  .sum = 1.0f + std::exp(-2.0f),
                  .label_logit = -infinity,
                  .class_logit = 2.0f * -2.0f,
                  .class_sum = 2.5f,
                  .argmax_value = 3.0f,
                  .argmax = 1,
                  .exp_logit = -2.0f * std::exp(-2.0f)};
  const Partial b{.max = 2.0f,
                  .sum = 1.0f,
                  .label_logit = 2.0f,
                  .class_logit = 0.0f,
                  .class_sum = 1.0f,
                  .argmax_value = 2.0f,
                  .argmax = 2,
                  .exp_logit = 0.0f};
  for (const auto& m : {merge(a, b), merge(b, a)}) {
    EXPECT_EQ(m.max, 3.0f);
    EXPECT_FLOAT_EQ(m.sum, 1.0f + std::exp(-2.0f) + std::exp(-1.0f));
    EXPECT_EQ(m.label_logit, 2.0f);
    EXPECT_FLOAT_EQ(m.class_logit, -4.0f - 1.0f);
    EXPECT_EQ(m.class_sum, 3.5f);
    EXPECT_EQ(m.argmax, 1);
    EXPECT_FLOAT_EQ(m.exp_logit, -2.0f * std::exp(-2.0f) - std::exp(-1.0f));
  }
}

TEST(Merge, TiesGoToTheLowestIndexAndNoColumnsLose) {
  const Partial low{.argmax_value = 4.0f, .argmax = 3};
  const Partial high{.argmax_value = 4.0f, .argmax = 9};
  const Partial none{.max = -infinity, .label_logit = -infinity, .argmax_value = -infinity};
  EXPECT_EQ(merge(low, high).argmax, 3);
  EXPECT_EQ(merge(high, low).argmax, 3);
  EXPECT_EQ(merge(none, high).argmax, 9);
  EXPECT_EQ(merge(high, none).argmax, 9);
  EXPECT_EQ(merge(none, none).argmax, -1);
}

}  // namespace
}  // namespace tessera::test
