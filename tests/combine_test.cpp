// SPDX-License-Identifier: Apache-2.0
// From partial results to the ordinary outputs: what is whole, what ran, what is refused.
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <utility>

#include "tests/support/expect_error.hpp"
#include "tests/support/sharded_layer.hpp"

namespace tessera::test {
namespace {

class Combine : public testing::TestWithParam<std::string> {
 protected:
  Combine() { layer_.implementation = GetParam(); }
  ShardedLayer layer_;
};

INSTANTIATE_TEST_SUITE_P(All, Combine, testing::ValuesIn(host_implementations()),
                         [](const auto& i) { return i.param; });

/// A call without shards is the whole: nobody has to repeat its width.
TEST_P(Combine, ASinglePartialOfTheWhole) {
  layer_.options.label_smoothing = 0.2f;
  const lce::ExecutionOptions execution{.implementation = GetParam()};
  const auto in = layer_.inputs(0, ShardedLayer::V);
  const auto whole = lce::forward(layer_.context, in, layer_.options, execution);
  const auto partial = lce::forward_partial(layer_.context, in, layer_.options, execution);
  EXPECT_EQ(partial.vocab_size_total, ShardedLayer::V);
  EXPECT_EQ(partial.ranges, (std::vector<ColumnRange>{{0, ShardedLayer::V}}));
  for (const LossOptions& options : {layer_.options, layer_.total()}) {
    const auto combined = lce::combine(partial, layer_.combine_inputs(), options);
    expect_same(combined, whole);
    EXPECT_EQ(combined.dispatch.implementation, GetParam());
    EXPECT_EQ(combined.dispatch.shards.size(), 1u);
  }
  // Merged shards know what they cover, too; rows from elsewhere do not.
  auto merged = merge(std::vector<PartialResult>{layer_.shard(0, 20), layer_.shard(20, 61)});
  expect_same(combine(merged, layer_.combine_inputs(), layer_.options), whole);
  merged.vocab_size_total = 0;
  merged.ranges.clear();
  expect_same(combine(merged, layer_.combine_inputs(), layer_.total()), whole);
  EXPECT_THROW(combine(merged, layer_.combine_inputs(), layer_.options), Error);
}

void refused(const std::function<void()>& call, const std::string& part,
             ErrorCode code = ErrorCode::invalid_argument) {
  expect_error(code, {part}, call);
}

/// What ran for each shard, whoever merged them first, and at the top each name once.
TEST(CombineShards, TheDispatchNamesAllShards) {
  ShardedLayer layer;
  std::vector<PartialResult> shards;
  const std::pair<const char*, std::pair<int, int>> parts[] = {
      {"eigen", {0, 20}}, {"reference", {20, 50}}, {"eigen", {50, 61}}};
  for (const auto& [implementation, range] : parts) {
    layer.implementation = implementation;
    shards.push_back(layer.shard(range.first, range.second));
  }
  const std::vector<PartialResult> tree = {merge(std::span(shards).first(2)), shards[2]};
  for (const auto* list : {static_cast<const std::vector<PartialResult>*>(&shards), &tree}) {
    const Dispatch dispatch = combine(*list, layer.combine_inputs(), layer.options).dispatch;
    ASSERT_EQ(dispatch.shards.size(), 3u);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(dispatch.shards[i].implementation, parts[i].first);
      EXPECT_EQ(dispatch.shards[i].schedule, shards[i].dispatch.schedule);
      bytes += shards[i].dispatch.workspace_bytes;
    }
    EXPECT_EQ(dispatch.implementation, "eigen, reference");
    EXPECT_EQ(dispatch.device, "host");
    EXPECT_EQ(dispatch.schedule, "") << "each has its own";
    EXPECT_EQ(dispatch.workspace_bytes, bytes);
    const std::string text = to_string(dispatch);
    EXPECT_NE(text.find("; shard 1: reference on host"), std::string::npos) << text;
    EXPECT_NE(text.find("; shard 2: eigen on host"), std::string::npos) << text;
  }
}

TEST(CombineShards, ShardsThatAreNotTheWhole) {
  ShardedLayer layer;
  layer.implementation = "eigen";
  const auto in = layer.combine_inputs();
  const auto low = layer.shard(0, 20), high = layer.shard(20, 61);
  const auto middle = layer.shard(20, 30), end = layer.shard(30, 61);
  EXPECT_EQ(merge(std::vector{low, end}).ranges, (std::vector<ColumnRange>{{0, 20}, {30, 61}}));
  EXPECT_EQ(merge(std::vector{end, low, middle}).ranges, (std::vector<ColumnRange>{{0, 61}}));
  const auto of = [&](const std::vector<PartialResult>& shards, const std::string& part) {
    refused([&] { combine(shards, in, layer.total()); }, part);
  };
  of({low}, "the columns 20 to 60 of 61 are in no shard");
  of({high}, "the columns 0 to 19 of 61 are in no shard");
  of({end, low}, "the columns 20 to 29 of 61 are in no shard");
  of({low, high, low}, "the columns 0 to 19 are in shards[2] and in a shard before it");
  // As many columns as the whole has, but not those.
  of({low, low, layer.shard(0, 21)}, "the columns 0 to 19 are in shards[1]");
  of({low, layer.shard(19, 60)}, "the columns 19 to 19 are in shards[1] and in a shard before it");
  of({high, layer.shard(0, 31)}, "the columns 20 to 30 are in shards[1]");
  of({end, middle, layer.shard(0, 35)}, "the columns 20 to 34 are in shards[2]");
  // Merged ones keep what they are of.
  of({merge(std::vector{low, end}), middle, middle}, "the columns 20 to 29 are in shards[2]");
  for (const ColumnRange wrong : {ColumnRange{-1, 20}, {20, 20}, {20, 62}}) {
    auto foreign = high;
    foreign.ranges = {wrong};
    of({low, foreign}, "shards[1] is said to have the columns from");
  }
  LossOptions other = layer.options;
  other.vocab_size_total = 62;
  refused(
      [&] {
        combine(std::vector{low, high}, in, other);
      },
      "vocab_size_total is 62 but the shards are of 61 columns");
  auto foreign = high;
  foreign.vocab_size_total = 60;
  refused(
      [&] {
        merge(std::vector{low, foreign});
      },
      "shards[1] is of a vocabulary of 60 columns, shards before it of 61");
}

/// Indices beyond what an i32 holds: as i64, from shards that know where they are and from rows of
/// elsewhere.
TEST(CombineShards, ArgmaxOfALargeVocabulary) {
  constexpr std::int64_t total = 3'000'000'000;
  const std::vector<std::int64_t> labels = {2'999'999'999, -100};
  const CombineInputs inputs{.labels = labels};
  LossOptions options;
  options.vocab_size_total = total;
  options.wants.argmax = true;
  PartialResult low, high;
  low.extents = high.extents = {2};
  low.vocab_size_total = high.vocab_size_total = total;
  low.ranges = {{0, 2'000'000'000}};
  high.ranges = {{2'000'000'000, total}};
  const Partial of_low{
      .max = 1.0f, .sum = 1.0f, .label_logit = -infinity, .argmax_value = 1.0f, .argmax = 7};
  const Partial of_high{
      .max = 2.0f, .sum = 1.0f, .label_logit = 2.0f, .argmax_value = 2.0f, .argmax = 2'999'999'999};
  low.rows = {of_low, of_low};
  high.rows = {of_high, of_high};
  const auto result = combine(std::vector{low, high}, inputs, options);
  ASSERT_EQ(result.argmax.dtype(), DType::i64);
  EXPECT_EQ(result.argmax.as<std::int64_t>()[0], 2'999'999'999);
  EXPECT_EQ(result.argmax.as<std::int64_t>()[1], -1);
  EXPECT_NEAR(result.loss.as<float>()[0], std::log(1.0 + std::exp(-1.0)), 1e-6);
}

TEST(CombineShards, MisuseIsRefused) {
  const std::vector<std::int32_t> labels = {0, 7};
  const CombineInputs inputs{.labels = labels};
  std::vector<PartialResult> shards(2);
  shards[0].rows.resize(2);
  shards[0].extents = {2};
  shards[1].rows.resize(3);
  shards[1].extents = {3};
  const LossOptions total{.vocab_size_total = 8};
  refused([&] { merge(std::span<const PartialResult>()); }, "no shard is given");
  refused([&] { merge(shards); }, "shards[1] has extents [3] but shards[0] has [2]");
  refused([&] { combine({}, inputs, total); }, "no shard is given");
  shards.pop_back();
  refused([&] { combine(shards, inputs, {}); },
          "vocab_size_total is 0 and the shards do not say it");
  refused([&] { combine(shards[0], inputs, {.vocab_size_total = -8}); }, "vocab_size_total is -8");
  refused([&] { combine(shards, {}, total); }, "labels is not given");
  refused([&] { combine(shards, inputs, {.vocab_size_total = 7}); }, "labels: row 1 is 7",
          ErrorCode::label_out_of_range);
  refused([&] { combine(shards, inputs, {.label_smoothing = 2.0f, .vocab_size_total = 8}); },
          "label_smoothing is 2");
  int token = 0;
  const auto memory = reinterpret_cast<cl_mem>(&token);
  refused([&] { combine(shards, {.labels = View::device(memory, 0, DType::i32, {2})}, total); },
          "labels is device memory");
  shards[0].rows.pop_back();
  refused([&] { merge(shards); }, "shards[0] has 1 rows but extents [2]");
}

}  // namespace
}  // namespace tessera::test
