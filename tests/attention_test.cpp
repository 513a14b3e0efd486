// SPDX-License-Identifier: Apache-2.0
// attention on every implementation against the text, which PyTorch's float64 judged.
#include "tessera/attention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/attention_case.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {

using attention::BlockSizes;
using attention::Causal;
using Layout = AttentionLayout;

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan = std::nan("");

/// A choice of levels for factors of so many levels each, such that any two levels of two factors
/// meet in some row; but those of the first two, whose product is the largest.
std::vector<std::vector<int>> pairs_of(const std::vector<int>& levels) {
  const int factors = static_cast<int>(levels.size());
  std::set<std::array<int, 4>> missing;
  const auto pair = [](int f, int a, int g, int b) {
    return f < g ? std::array{f, a, g, b} : std::array{g, b, f, a};
  };
  for (int f = 0; f < factors; ++f) {
    for (int g = std::max(f + 1, 2); g < factors; ++g) {
      for (int a = 0; a < levels[static_cast<std::size_t>(f)]; ++a) {
        for (int b = 0; b < levels[static_cast<std::size_t>(g)]; ++b) missing.insert({f, a, g, b});
      }
    }
  }
  std::vector<std::vector<int>> rows;
  while (!missing.empty()) {
    const auto [first, a, second, b] = *missing.begin();
    std::vector<int> row(levels.size(), -1);
    row[static_cast<std::size_t>(first)] = a;
    row[static_cast<std::size_t>(second)] = b;
    for (int f = 0; f < factors; ++f) {
      auto& level = row[static_cast<std::size_t>(f)];
      if (level >= 0) continue;
      int most = -1, best = 0;
      const int n = levels[static_cast<std::size_t>(f)];
      for (int tried = 0; tried < n; ++tried) {
        // From another level in every row, so that those of no gain take turns.
        const int candidate = (tried + static_cast<int>(rows.size())) % n;
        int gain = 0;
        for (int g = 0; g < factors; ++g) {
          const int other = row[static_cast<std::size_t>(g)];
          if (g != f && other >= 0) {
            gain += static_cast<int>(missing.count(pair(f, candidate, g, other)));
          }
        }
        if (gain > most) {
          most = gain;
          best = candidate;
        }
      }
      level = best;
    }
    for (int f = 0; f < factors; ++f) {
      for (int g = f + 1; g < factors; ++g) {
        missing.erase({f, row[static_cast<std::size_t>(f)], g, row[static_cast<std::size_t>(g)]});
      }
    }
    rows.push_back(row);
  }
  return rows;
}

/// Extents of a bias; an axis is 1 or as it is.
Dims bias_extents(int rank, bool batch_1, bool heads_1, bool s_1, bool t_1) {
  Dims extents;
  for (int axis = 0; axis + 3 < rank; ++axis) extents.push_back(batch_1 ? 1 : 0);
  extents.push_back(heads_1 ? 1 : 0);
  extents.push_back(s_1 ? 1 : 0);
  extents.push_back(t_1 ? 1 : 0);
  return extents;
}

/// Every level of an option, a type, a layout with every one of another, on small shapes.
std::vector<AttentionCase> cases_in_pairs() {
  // Queries and keys of flash-attn's, Tokamax's and vLLM's tests.
  const std::vector<std::pair<int, int>> shapes = {
      {1, 1}, {1, 3},  {2, 1},   {7, 8},  {5, 5},   {1, 147}, {3, 33},  {33, 17},
      {7, 0}, {37, 1}, {8, 256}, {40, 8}, {1, 339}, {64, 80}, {3, 513}, {17, 64}};
  const std::vector<int> depths = {64,  1,   24,  32,  40,  48,  59,  80, 96,
                                   111, 112, 128, 160, 192, 224, 256, 512};
  const std::vector<int> value_depths = {0, 64, 1, 112, 37};
  const std::vector<std::pair<int, int>> heads = {{1, 1}, {4, 4}, {8, 2}, {9, 3}, {16, 1}, {5, 1}};
  const std::vector<Dims> batches = {{}, {1}, {3}, {2, 1}, {1, 2, 2}};
  const std::vector<std::pair<int, int>> windows = {{-1, -1}, {5, -1}, {-1, 3}, {5, 3},
                                                    {0, 0},   {-1, 0}, {127, 0}};
  const std::vector<float> caps = {0.0f, 15.0f, 50.0f, 1.0f};
  const std::vector<std::optional<float>> scales = {std::nullopt, 0.0f, -0.25f, 0.3f};
  const std::vector<DType> types = {DType::f32, DType::bf16, DType::f16};
  const std::vector<std::optional<DType>> lengths = {std::nullopt, DType::i32, DType::i64};
  const std::vector<std::optional<DType>> some = {std::nullopt, DType::f32, DType::bf16,
                                                  DType::f16};
  const std::vector<std::optional<BlockSizes>> blocks = {
      std::nullopt,       BlockSizes{1, 1},   BlockSizes{7, 5},
      BlockSizes{64, 48}, BlockSizes{33, 16}, BlockSizes{1000, 1000}};
  const std::vector<std::pair<bool, bool>> outputs = {{true, true}, {true, false}, {false, true}};
  const auto n = [](const auto& levels) { return static_cast<int>(levels.size()); };
  constexpr int bias_levels = 9;
  const auto rows = pairs_of({n(depths),   n(shapes),  n(value_depths),
                              n(heads),    n(batches), 3,
                              n(windows),  n(caps),    n(scales),
                              bias_levels, 3,          n(lengths),
                              n(some),     n(some),    3,
                              3,           3,          3,
                              6,           n(blocks),  n(outputs)});
  std::vector<AttentionCase> cases;
  for (const auto& row : rows) {
    std::size_t factor = 0;
    const auto level = [&] { return static_cast<std::size_t>(row[factor++]); };
    AttentionCase c;
    c.d = depths[level()];
    std::tie(c.s, c.t) = shapes[level()];
    c.e = value_depths[level()];
    std::tie(c.q_heads, c.kv_heads) = heads[level()];
    c.batch = batches[level()];
    c.options.causal = static_cast<Causal>(level());
    std::tie(c.options.window_left, c.options.window_right) = windows[level()];
    c.options.logit_soft_cap = caps[level()];
    c.options.scale = scales[level()];
    const int rank = c.batch.rank() + 3;
    const std::vector<Dims> biases = {{},
                                      bias_extents(rank, false, false, false, false),
                                      bias_extents(rank, true, false, false, false),
                                      bias_extents(rank, false, true, false, false),
                                      bias_extents(rank, false, false, true, false),
                                      bias_extents(rank, false, false, false, true),
                                      bias_extents(rank, true, true, true, true),
                                      bias_extents(rank, false, false, false, false),
                                      bias_extents(rank, true, true, false, false)};
    const std::size_t bias = level();
    c.bias = biases.at(bias);
    c.masks = bias + 2 >= bias_levels;
    c.bias_type = types[level()];
    c.lengths = lengths[level()];
    c.sinks = some[level()];
    c.slopes = some[level()];
    c.q_type = types[level()];
    c.k_type = types[level()];
    c.v_type = types[level()];
    c.y_type = types[level()];
    c.layout = static_cast<Layout>(level());
    c.blocks = blocks[level()];
    std::tie(c.y, c.lse) = outputs[level()];
    for (const int each : row) c.name += (c.name.empty() ? "levels " : " ") + std::to_string(each);
    cases.push_back(c);
  }
  return cases;
}

// The longer shapes of the notes, each with a depth, and options that make blocks of all kinds:
// skipped, whole, and cut by a diagonal or a window on either side.
const AttentionCase long_cases[] = {
    {.name = "113_203", .q_heads = 4, .s = 113, .t = 203, .d = 32},
    {.name = "128_217_causal",
     .q_heads = 6,
     .kv_heads = 2,
     .s = 128,
     .t = 217,
     .d = 40,
     .options = {.causal = Causal::lower_right},
     .layout = Layout::tokens_first},
    {.name = "108_256_window",
     .s = 108,
     .t = 256,
     .d = 59,
     .options = {.window_left = 30, .window_right = 17}},
    {.name = "256_512_causal_bf16",
     .q_heads = 4,
     .s = 256,
     .t = 512,
     .d = 64,
     .options = {.causal = Causal::lower_right},
     .q_type = DType::bf16,
     .k_type = DType::bf16,
     .v_type = DType::bf16,
     .y_type = DType::bf16,
     .layout = Layout::tokens_first},
    {.name = "512_256_causal",
     .s = 512,
     .t = 256,
     .d = 80,
     .options = {.causal = Causal::lower_right}},
    {.name = "512_256_upper_left",
     .s = 512,
     .t = 256,
     .d = 80,
     .options = {.causal = Causal::upper_left},
     .layout = Layout::padded},
    {.name = "799_3", .s = 799, .t = 3, .d = 96, .options = {.causal = Causal::lower_right}},
    {.name = "239_1", .q_heads = 4, .s = 239, .t = 1, .d = 64, .e = 32},
    {.name = "256_8",
     .q_heads = 4,
     .s = 256,
     .t = 8,
     .d = 48,
     .options = {.causal = Causal::lower_right},
     .lengths = DType::i64},
    {.name = "511_1", .s = 511, .t = 1, .d = 111, .options = {.logit_soft_cap = 15.0f}},
    {.name = "307_256_cap",
     .q_heads = 3,
     .kv_heads = 3,
     .s = 307,
     .t = 256,
     .d = 128,
     .options = {.causal = Causal::upper_left, .logit_soft_cap = 50.0f}},
    {.name = "640_128_f16",
     .s = 640,
     .t = 128,
     .d = 160,
     .q_type = DType::f16,
     .k_type = DType::f16,
     .v_type = DType::f16,
     .y_type = DType::f16},
    {.name = "1023_1024_causal",
     .q_heads = 1,
     .s = 1023,
     .t = 1024,
     .d = 64,
     .options = {.causal = Causal::lower_right}},
    {.name = "1023_1024_wide",
     .q_heads = 1,
     .s = 1023,
     .t = 1024,
     .d = 192,
     .e = 128,
     .options = {.window_left = 256, .window_right = 0},
     .sinks = DType::f32},
    {.name = "1024_1023_causal",
     .q_heads = 1,
     .s = 1024,
     .t = 1023,
     .d = 128,
     .options = {.causal = Causal::lower_right},
     .k_type = DType::bf16,
     .v_type = DType::bf16},
    {.name = "1024_1023_lengths",
     .batch = {2},
     .q_heads = 1,
     .s = 1024,
     .t = 1023,
     .d = 24,
     .options = {.causal = Causal::lower_right, .window_left = 100},
     .lengths = DType::i32},
    {.name = "1_128_group", .q_heads = 16, .s = 1, .t = 128, .d = 224},
    {.name = "3_1024_group",
     .q_heads = 8,
     .s = 3,
     .t = 1024,
     .d = 256,
     .options = {.causal = Causal::lower_right},
     .layout = Layout::tokens_first},
    {.name = "3_799", .q_heads = 9, .kv_heads = 3, .s = 3, .t = 799, .d = 48, .e = 64},
    {.name = "64_800_alibi",
     .q_heads = 4,
     .s = 64,
     .t = 800,
     .d = 128,
     .options = {.causal = Causal::lower_right},
     .slopes = DType::f32},
    {.name = "512_539_causal",
     .q_heads = 1,
     .s = 512,
     .t = 539,
     .d = 24,
     .e = 112,
     .options = {.causal = Causal::lower_right}},
    {.name = "192_328_bias",
     .q_heads = 2,
     .s = 192,
     .t = 328,
     .d = 128,
     .bias = {0, 0, 0},
     .bias_type = DType::bf16,
     .masks = true},
    {.name = "134_1331_512",
     .q_heads = 1,
     .s = 134,
     .t = 1331,
     .d = 512,
     .options = {.causal = Causal::lower_right}},
    {.name = "64_255_of_every_depth_1", .q_heads = 4, .s = 64, .t = 255, .d = 1, .e = 512},
    // Decoding: parts of the keys of which some, the first or all see nothing.
    {.name = "1_2000_window",
     .q_heads = 4,
     .s = 1,
     .t = 2000,
     .d = 32,
     .options = {.causal = Causal::lower_right, .window_left = 100}},
    {.name = "2_2600_lengths",
     .batch = {5},
     .q_heads = 4,
     .kv_heads = 2,
     .s = 2,
     .t = 2600,
     .d = 16,
     .options = {.causal = Causal::lower_right},
     .lengths = DType::i32,
     .sinks = DType::f32},
    {.name = "1_2000_upper_left",
     .s = 1,
     .t = 2000,
     .d = 16,
     .options = {.causal = Causal::upper_left}},
    {.name = "1_5131", .q_heads = 8, .kv_heads = 2, .s = 1, .t = 5131, .d = 64},
};

class Attention : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    AttentionCall call({.name = "asked"});
    if (const auto why = call.refusal(GetParam())) GTEST_SKIP() << *why;
  }
  /// The textbook takes each multiplication's time.
  bool has_time_for(const AttentionCase& c) const {
    return GetParam() != "reference" || c.work() < 20'000'000;
  }
  void check(const AttentionCase& c) {
    AttentionCall call(c);
    check(c, call);
  }
  void check(const AttentionCase& c, AttentionCall& call) {
    SCOPED_TRACE(c.name);
    const auto why = call.refusal(GetParam());
    EXPECT_FALSE(why) << *why;
    if (!why) call.check(GetParam());
  }
  /// The case with blocks of 4 keys, of odd sizes and as they are chosen, after `change`.
  void check_edge(AttentionCase c, const std::function<void(AttentionCall&)>& change = nullptr) {
    for (const std::optional<BlockSizes>& blocks :
         {std::optional<BlockSizes>(), std::optional(BlockSizes{4, 4}),
          std::optional(BlockSizes{3, 7})}) {
      c.blocks = blocks;
      AttentionCall call(c);
      if (change) change(call);
      SCOPED_TRACE(blocks ? "blocks of " + std::to_string(blocks->kv_block_size) : "its blocks");
      check(c, call);
    }
  }
};

TEST_P(Attention, IsTheTextInPairs) {
  for (const auto& c : cases_in_pairs()) {
    if (is_wanted(c.name) && has_time_for(c)) check(c);
  }
}

TEST_P(Attention, IsTheTextOnLongSequences) {
  for (const auto& c : long_cases) {
    if (is_wanted(c.name) && has_time_for(c)) check(c);
  }
}

TEST_P(Attention, HasTheSameBitsOnAnyThreadsAndAgain) {
  for (const AttentionCase& c :
       {AttentionCase{.name = "causal",
       .batch = {2},
       .q_heads = 6,
       .kv_heads = 2,
       .s = 70,
       .t = 90,
       .d = 20,
       .options = {.causal = Causal::lower_right},
       .lengths = DType::i32,
       .sinks = DType::f32},
        AttentionCase{.name = "decode", .s = 1, .t = 1500, .d = 64},
        AttentionCase{
            .name = "small blocks", .q_heads = 3, .s = 40, .t = 50, .blocks = BlockSizes{8, 16}}}) {
    SCOPED_TRACE(c.name);
    AttentionCall call(c);
    const auto bits = call.run(attention_context(1), GetParam());
    for (const int threads : {1, 3, 3}) {
      EXPECT_EQ(call.run(attention_context(threads), GetParam()), bits) << threads << " threads";
    }
  }
}

// Rows without a key.

TEST_P(Attention, ARowMaskedByTheBiasIsZero) {
  check_edge({.name = "bias", .s = 6, .t = 9, .bias = {0, 0, 0}}, [](AttentionCall& call) {
    for (std::int64_t j = 0; j < 9; ++j) call.set(call.bias, {1, 2, j}, -infinity);
  });
}

TEST_P(Attention, ARowMaskedByTheBiasHasTheSink) {
  check_edge({.name = "bias", .s = 6, .t = 9, .bias = {0, 0, 0}, .sinks = DType::f32},
             [](AttentionCall& call) {
               for (std::int64_t j = 0; j < 9; ++j) call.set(call.bias, {1, 2, j}, -infinity);
             });
}

TEST_P(Attention, AWindowEmptiesRows) {
  // Query i stands at i + 4 - 12, so that the first seven see no key and the eighth sees key 0.
  for (const bool sink : {false, true}) {
    AttentionCase c{
        .name = "window", .s = 12, .t = 4, .options = {.window_left = 0, .window_right = 1}};
    if (sink) c.sinks = DType::f32;
    check_edge(c);
  }
  // Query i of 12 stands at i, beyond the last of 4 keys.
  check_edge({.name = "behind the last key",
              .s = 12,
              .t = 4,
              .options = {.causal = Causal::upper_left, .window_left = 2}});
}

TEST_P(Attention, AWindowMayBeAsLargeAsAnInteger) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const auto& [left, right] : {std::pair{most, most}, {most, std::int64_t{0}}, {1, most}}) {
    check_edge({.name = "window",
                .s = 6,
                .t = 9,
                .options = {.window_left = left, .window_right = right}});
  }
}

TEST_P(Attention, QueriesBeforeTheFirstKeySeeNone) {
  for (const bool sink : {false, true}) {
    AttentionCase c{
        .name = "lower right", .s = 11, .t = 6, .options = {.causal = Causal::lower_right}};
    if (sink) c.sinks = DType::f32;
    check_edge(c);
  }
}

TEST_P(Attention, ALengthOfZeroIsNoKey) {
  for (const bool sink : {false, true}) {
    AttentionCase c{.name = "lengths", .batch = {3}, .s = 3, .t = 6, .lengths = DType::i64};
    if (sink) c.sinks = DType::f32;
    check_edge(c);
  }
}

TEST_P(Attention, NoKeysAtAll) {
  for (const bool sink : {false, true}) {
    for (const Causal causal : {Causal::no, Causal::lower_right, Causal::upper_left}) {
      AttentionCase c{.name = "T 0", .s = 5, .t = 0, .options = {.causal = causal}};
      if (sink) c.sinks = DType::f32;
      check_edge(c);
    }
  }
}

TEST_P(Attention, NothingIsWrittenWhereNothingIs) {
  check_edge({.name = "S 0", .s = 0});
  check_edge({.name = "no batch", .batch = {0}});
  check_edge({.name = "no batch of many axes", .batch = {2, 0, 3}, .lengths = DType::i32});
  check_edge({.name = "no heads", .q_heads = 0, .kv_heads = 1});
  check_edge({.name = "no heads at all", .q_heads = 0, .kv_heads = 0});
}

// Rows that see a NaN or a logit of +Inf.

/// Each step between a product and its exponential might lose a NaN.
std::vector<AttentionCase> ways_of_a_logit() {
  const AttentionCase plain{.name = "plain", .s = 9, .t = 12};
  std::vector<AttentionCase> all(6, plain);
  all[1].options.causal = Causal::lower_right;
  all[2].options.logit_soft_cap = 20.0f;
  all[3].slopes = DType::f32;
  all[4].bias = {0, 0, 0};
  all[5].sinks = DType::f32;
  const char* names[] = {"plain", "causal", "cap", "alibi", "bias", "sink"};
  for (std::size_t i = 0; i < all.size(); ++i) all[i].name = names[i];
  return all;
}

TEST_P(Attention, ANanInQIsItsRow) {
  for (const auto& c : ways_of_a_logit()) {
    check_edge(c, [](AttentionCall& call) { call.set(call.q, {1, 4, 3}, nan); });
  }
}

TEST_P(Attention, ANanInAKeyIsOfTheRowsThatSeeIt) {
  for (const auto& c : ways_of_a_logit()) {
    check_edge(c, [](AttentionCall& call) { call.set(call.k, {0, 7, 3}, nan); });
  }
  check_edge({.name = "causal", .s = 12, .t = 12, .options = {.causal = Causal::lower_right}},
             [](AttentionCall& call) {
               call.set(call.k, {0, 5, 7}, nan);
             });
  check_edge({.name = "window", .s = 12, .t = 12, .options = {.window_left = 2, .window_right = 1}},
             [](AttentionCall& call) {
               call.set(call.k, {0, 5, 0}, nan);
             });
  check_edge({.name = "of one group", .q_heads = 4, .kv_heads = 2, .s = 6, .t = 12},
             [](AttentionCall& call) {
               call.set(call.k, {1, 11, 0}, nan);
             });
}

TEST_P(Attention, ANanInTheBiasIsOfTheRowThatSeesIt) {
  check_edge({.name = "bias",
              .s = 9,
              .t = 9,
              .options = {.causal = Causal::lower_right},
              .bias = {0, 0, 0}},
             [](AttentionCall& call) {
               call.set(call.bias, {0, 6, 2}, nan);
               // Behind the query's place: nothing sees it.
               call.set(call.bias, {1, 3, 7}, nan);
             });
}

TEST_P(Attention, AMaskHidesANanInAKey) {
  check_edge({.name = "mask", .s = 6, .t = 9, .bias = {1, 1, 0}}, [](AttentionCall& call) {
    for (std::int64_t i = 0; i < 8; ++i) call.set(call.k, {0, 4, i}, nan);
    call.set(call.bias, {0, 0, 4}, -infinity);
  });
}

TEST_P(Attention, AMaskHidesAKeyOfInfinity) {
  // -Inf + Inf would be NaN.
  check_edge({.name = "mask", .s = 6, .t = 9, .bias = {1, 1, 0}}, [](AttentionCall& call) {
    for (std::int64_t i = 0; i < 8; ++i) call.set(call.k, {0, 4, i}, infinity);
    call.set(call.bias, {0, 0, 4}, -infinity);
  });
}

TEST_P(Attention, ALogitOfInfinityIsNan) {
  check_edge({.name = "bias", .s = 6, .t = 9, .bias = {0, 0, 0}}, [](AttentionCall& call) {
    call.set(call.bias, {0, 2, 3}, infinity);
    call.set(call.bias, {1, 5, 8}, infinity);
  });
  check_edge({.name = "product", .s = 6, .t = 9, .d = 1}, [](AttentionCall& call) {
    for (std::int64_t i = 0; i < 6; ++i) {
      call.set(call.q, {0, i, 0}, 1.0);
      call.set(call.q, {1, i, 0}, i == 2 ? 2.0 : 0.5);
    }
    call.set(call.k, {0, 7, 0}, infinity);
  });
}

TEST_P(Attention, ALogitOfMinusInfinityIsSeen) {
  // Its key has no share; where all are, there is nothing to be shared.
  for (const bool all : {false, true}) {
    for (const bool sink : {false, true}) {
      AttentionCase c{.name = "product", .s = 6, .t = 9, .d = 1};
      if (sink) c.sinks = DType::f32;
      check_edge(c, [&](AttentionCall& call) {
        for (std::int64_t i = 0; i < 12; ++i) call.set(call.q, {i / 6, i % 6, 0}, 1.0);
        for (std::int64_t j = 0; j < 9; ++j) {
          if (all || j % 4 == 2) call.set(call.k, {0, j, 0}, -infinity);
        }
      });
    }
  }
}

TEST_P(Attention, ACapTakesALogitOfInfinity) {
  // cap tanh(Inf) is cap.
  check_edge({.name = "cap", .s = 6, .t = 9, .d = 1, .options = {.logit_soft_cap = 3.0f}},
             [](AttentionCall& call) {
               for (std::int64_t i = 0; i < 12; ++i) call.set(call.q, {i / 6, i % 6, 0}, 1.0 + i);
               call.set(call.k, {0, 7, 0}, infinity);
             });
}

TEST_P(Attention, ANanSinkOrSlopeIsItsHeads) {
  check_edge({.name = "sink", .q_heads = 3, .s = 4, .t = 9, .sinks = DType::f32},
             [](AttentionCall& call) { call.set(call.sinks, {1}, nan); });
  check_edge({.name = "slope", .q_heads = 3, .s = 4, .t = 9, .slopes = DType::f32},
             [](AttentionCall& call) { call.set(call.slopes, {1}, nan); });
}

// A NaN or an infinity that a row does not see has no effect on it.

TEST_P(Attention, ASpoiledValueIsOfTheRowsThatSeeIt) {
  for (const double spoil : {nan, infinity, -infinity}) {
    SCOPED_TRACE(spoil);
    for (const std::int64_t key : {0, 5, 11}) {
      SCOPED_TRACE(key);
      const auto set = [&](AttentionCall& call) { call.set(call.v, {0, key, 2}, spoil); };
      check_edge({.name = "diagonal", .s = 12, .t = 12, .options = {.causal = Causal::lower_right}},
                 set);
      check_edge(
          {.name = "window", .s = 12, .t = 12, .options = {.window_left = 2, .window_right = 2}},
          set);
      check_edge({.name = "mask", .s = 5, .t = 12, .bias = {0, 0, 0}}, [&](AttentionCall& call) {
        set(call);
        for (std::int64_t i = 0; i < 4; ++i) call.set(call.bias, {0, i, key}, -infinity);
        call.set(call.bias, {1, 3, key}, -infinity);
      });
    }
  }
}

TEST_P(Attention, WhatLiesBeyondALengthIsNotRead) {
  // AttentionCall puts NaN and Inf there.
  for (const auto causal : {Causal::no, Causal::lower_right, Causal::upper_left}) {
    check_edge({.name = "lengths",
                .batch = {5},
                .q_heads = 4,
                .kv_heads = 2,
                .s = 6,
                .t = 21,
                .options = {.causal = causal},
                .lengths = DType::i32});
  }
}

TEST_P(Attention, APageBeyondALengthIsNotTouched) {
  // Views that promise more keys than there is memory for: a guard page follows.
  AttentionCase c{.name = "page", .batch = {1}, .s = 3, .t = 20};
  for (const std::optional<BlockSizes>& blocks :
       {std::optional<BlockSizes>(), std::optional(BlockSizes{4, 8})}) {
    AttentionCase whole = c;
    whole.blocks = blocks;
    AttentionCall call(whole);
    const std::int32_t n = 20;
    auto inputs = call.inputs();
    inputs.kv_lengths = View::host(&n, {1});
    for (View* view : {&inputs.k, &inputs.v}) {
      Dims extents = view->extents();
      extents[2] = 100000;
      *view = view->reshaped(extents, view->strides());
    }
    std::vector<float> y(2 * 3 * 8, -7.0f), expected(y.size(), 0.0f);
    attention::forward(attention_context(), inputs,
                       {.y = MutableView::host(y.data(), {1, 2, 3, 8})}, {}, call.on(GetParam()))
        .wait();
    attention::forward(attention_context(), call.inputs(),
                       {.y = MutableView::host(expected.data(), {1, 2, 3, 8})}, {},
                       call.on(GetParam()))
        .wait();
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-5) << i;
  }
}

TEST_P(Attention, GapsBetweenRowsAreNotRead) {
  // Poison, a NaN, lies in them.
  for (const auto layout : {Layout::padded, Layout::spread}) {
    check_edge({.name = "gaps",
                .batch = {2},
                .q_heads = 4,
                .kv_heads = 2,
                .s = 9,
                .t = 19,
                .d = 5,
                .e = 11,
                .layout = layout,
                .bias = {0, 0, 0, 0}});
  }
}

TEST_P(Attention, AMaskEmptiesPartsOfTheKeys) {
  for (const std::int64_t first : {0, 700, 1800}) {
    AttentionCase c{.name = "parts", .s = 1, .t = 2400, .d = 16, .bias = {1, 1, 0}};
    AttentionCall call(c);
    for (std::int64_t j = 0; j < 2400; ++j) {
      if (j < first || j >= first + 300) call.set(call.bias, {0, 0, j}, -infinity);
    }
    check(c, call);
  }
}

TEST_P(Attention, ANanInOnePartOfTheKeysIsTheRows) {
  for (const std::int64_t key : {0, 1300, 2399}) {
    AttentionCase c{.name = "parts", .q_heads = 4, .kv_heads = 2, .s = 1, .t = 2400, .d = 16};
    AttentionCall call(c);
    call.set(call.k, {1, key, 5}, nan);
    call.set(call.v, {0, key, 5}, nan);
    check(c, call);
  }
}

TEST_P(Attention, ARowOfNothingButMinusInfinityIsOneOfNoKey) {
  check_edge({.name = "all", .s = 6, .t = 30, .bias = {1, 1, 1}}, [](AttentionCall& call) {
    call.set(call.bias, {0, 0, 0}, -infinity);
  });
}

// Logits of any finite size. q is 1 or a power of two and D is 1, so f32 has them exactly.

/// Logits of T keys, the same for each of S queries.
AttentionCase of_logits(const std::string& name, std::int64_t t) {
  return {.name = name,
          .q_heads = 1,
          .s = 5,
          .t = t,
          .d = 1,
          .e = 6,
          .options = {.scale = 1.0f},
          .exact_logits = true};
}

std::function<void(AttentionCall&)> logits(
    const std::function<double(std::int64_t query, std::int64_t key)>& logit) {
  return [logit](AttentionCall& call) {
    const std::int64_t s = call.q.extents[1], t = call.k.extents[1];
    for (std::int64_t i = 0; i < s; ++i) call.set(call.q, {0, i, 0}, std::ldexp(1.0, int(i) - 2));
    for (std::int64_t j = 0; j < t; ++j) call.set(call.k, {0, j, 0}, logit(0, j));
  };
}

TEST_P(Attention, LogitsOfTenThousand) {
  check_edge(of_logits("apart by units", 50), logits([](auto, std::int64_t j) {
               return 10000.0 + static_cast<double>(j * 7 % 11) / 4.0;
             }));
  check_edge(of_logits("of both signs", 50),
             logits([](auto, std::int64_t j) { return j % 3 == 0 ? -10000.0 : 10000.0; }));
}

TEST_P(Attention, AllLogitsAreNegative) {
  check_edge(of_logits("negative", 50), logits([](auto, std::int64_t j) {
               return -10000.0 - static_cast<double>(j * 7 % 11) / 4.0;
             }));
}

TEST_P(Attention, AConstantMaximum) {
  check_edge(of_logits("constant", 3000), logits([](auto, auto) { return 3.0; }));
}

TEST_P(Attention, AMaximumThatRisesInEveryBlock) {
  for (const double step : {0.01, 0.25, 30.0, 1000.0}) {
    SCOPED_TRACE(step);
    auto c = of_logits("rising", 300);
    check_edge(c, logits([&](auto, std::int64_t j) {
                 return std::round(64.0 * step * static_cast<double>(j / 4)) / 64.0;
               }));
  }
}

TEST_P(Attention, AMaximumThatFalls) {
  check_edge(of_logits("falling", 300),
             logits([](auto, std::int64_t j) { return -static_cast<double>(j) / 4.0; }));
}

TEST_P(Attention, OneHotKey) {
  for (const std::int64_t hot : {0, 149, 299}) {
    check_edge(of_logits("hot", 300),
               logits([hot](auto, std::int64_t j) { return j == hot ? 1000.0 : -3.0; }));
  }
}

TEST_P(Attention, SinksFarFromTheLogits) {
  for (const double sink : {1e4, -1e4, 40.0, -40.0}) {
    SCOPED_TRACE(sink);
    auto c = of_logits("sink", 30);
    c.sinks = DType::f32;
    const auto set = logits([](auto, std::int64_t j) { return static_cast<double>(j % 7) / 8.0; });
    check_edge(c, [&](AttentionCall& call) {
      set(call);
      call.set(call.sinks, {0}, sink);
    });
  }
}

TEST_P(Attention, AMaskOfALargeNumberIsALogit) {
  // Models write masks so: a finite number is added, and a row of nothing else has its mean.
  check_edge({.name = "lowest", .s = 6, .t = 9, .bias = {0, 0, 0}}, [](AttentionCall& call) {
    const double lowest = -1e9;
    for (std::int64_t j = 0; j < 9; ++j) {
      call.set(call.bias, {0, 2, j}, lowest);
      if (j > 3) call.set(call.bias, {1, 4, j}, lowest);
    }
  });
}

// Outputs, memory and estimates.

TEST_P(Attention, OwnedResultsLieAsQDoes) {
  for (const auto layout : {Layout::dense, Layout::tokens_first}) {
    for (const bool lse : {false, true}) {
      AttentionCase c{.name = "owned",
                      .batch = {2},
                      .q_heads = 3,
                      .s = 5,
                      .t = 7,
                      .d = 8,
                      .e = 4,
                      .q_type = DType::bf16,
                      .layout = layout};
      c.options.wants.lse = lse;
      AttentionCall call(c);
      const auto result =
          attention::forward(attention_context(), call.inputs(), c.options, call.on(GetParam()));
      EXPECT_EQ(result.dispatch.implementation, GetParam());
      ASSERT_EQ(result.y.dtype(), DType::bf16);
      EXPECT_EQ(result.y.extents(), (Dims{2, 3, 5, 4}));
      EXPECT_EQ(result.y.strides(),
                (layout == Layout::dense ? Dims{60, 20, 4, 1} : Dims{60, 4, 12, 1}));
      ASSERT_EQ(static_cast<bool>(result.lse), lse);
      if (lse) {
        ASSERT_EQ(result.lse.dtype(), DType::f32);
        EXPECT_EQ(result.lse.extents(), (Dims{2, 3, 5}));
        EXPECT_EQ(result.lse.strides(), (Dims{15, 5, 1}));
      }
      const AttentionText text(call.inputs(), c.options);
      const auto y = elements_of(result.y.view()), lses = elements_of(result.lse.view());
      for (std::int64_t row = 0; row < text.rows(); ++row) {
        const auto expected = text.row(row);
        if (lse) {
          EXPECT_NEAR(lses[static_cast<std::size_t>(row)], expected.lse, 1e-5) << row;
        }
        for (std::size_t e = 0; e < 4; ++e) {
          // bf16 has 8 bits.
          EXPECT_NEAR(y[static_cast<std::size_t>(row) * 4 + e], expected.y[e],
                      0x1p-8 * std::abs(expected.y[e]) + 1e-5)
              << row;
        }
      }
    }
  }
}

TEST_P(Attention, AViewOfOneOutputIsThatOutput) {
  const AttentionCase both{.name = "both", .s = 9, .t = 20};
  AttentionCase y = both, lse = both;
  y.lse = lse.y = false;
  AttentionCall of_both(both), of_y(y), of_lse(lse);
  auto bits = of_y.run(attention_context(), GetParam());
  const auto others = of_lse.run(attention_context(), GetParam());
  bits.insert(bits.end(), others.begin(), others.end());
  EXPECT_EQ(bits, of_both.run(attention_context(), GetParam()));
}

TEST_P(Attention, LengthsThatAreNoneAreAnError) {
  for (const std::int64_t length : {std::int64_t{-1}, std::int64_t{8}, std::int64_t{1} << 40}) {
    AttentionCase c{.name = "lengths", .batch = {2}, .t = 7, .lengths = DType::i64};
    AttentionCall call(c);
    call.lengths.storage->set_integer(call.lengths.at(1), length);
    std::vector<float> y(2 * 2 * 5 * 8, -7.0f);
    expect_error(ErrorCode::invalid_argument, {"kv_lengths", std::to_string(length), "7"}, [&] {
      attention::forward(attention_context(), call.inputs(),
                         {.y = MutableView::host(y.data(), {2, 2, 5, 8})}, {}, call.on(GetParam()))
          .wait();
    });
    EXPECT_EQ(std::count(y.begin(), y.end(), -7.0f), static_cast<std::ptrdiff_t>(y.size()));
  }
}

TEST_P(Attention, RunsInTheWorkspaceThatItPlans) {
  const AttentionCase c{.name = "workspace", .q_heads = 4, .kv_heads = 2, .s = 150, .t = 300};
  AttentionCall call(c);
  Context& context = attention_context();
  auto execution = call.on(GetParam());
  std::vector<float> y(4 * 150 * 8, -7.0f);
  const attention::Outputs out{.y = MutableView::host(y.data(), {4, 150, 8})};
  const auto plan = [&] {
    return attention::plan(context, Pass::forward, call.inputs(), out, {}, {}, execution);
  };
  const std::int64_t least = plan().minimum_workspace_bytes;
  execution.workspace_bytes = static_cast<std::size_t>(least);
  EXPECT_LE(plan().workspace_bytes, least);
  attention::forward(context, call.inputs(), out, {}, execution).wait();
  const AttentionText text(call.inputs(), {});
  for (std::int64_t row = 0; row < text.rows(); row += 7) {
    const auto expected = text.row(row);
    for (std::int64_t e = 0; e < 8; ++e) {
      const double value = expected.y[static_cast<std::size_t>(e)];
      EXPECT_NEAR(static_cast<double>(y[static_cast<std::size_t>(row * 8 + e)]), value,
                  expected.y_tolerance[static_cast<std::size_t>(e)] + 0x1p-24 * std::abs(value));
    }
  }
  if (least <= 1) return;  // it needs none
  execution.workspace_bytes = static_cast<std::size_t>(least - 1);
  expect_error(ErrorCode::workspace_too_small, {std::to_string(least)}, [&] { plan(); });
}

TEST_P(Attention, ScratchMemoryIsBounded) {
  if (GetParam() == "reference") GTEST_SKIP() << "the textbook holds its inputs in double";
  for (const auto& [s, t] : {std::pair<std::int64_t, std::int64_t>{16384, 16384},
                             {1, 1 << 20},
                             {1 << 20, 1},
                             {32, 100000}}) {
    for (const std::int64_t depth : {64, 128, 512}) {
      const auto shape = [&](std::int64_t heads, std::int64_t tokens) {
        return View::host(nullptr, DType::bf16, {heads, tokens, depth});
      };
      const auto plan = [&](int threads) {
        const auto made =
            attention::plan(attention_context(threads), Pass::forward,
                            {.q = shape(8, s), .k = shape(2, t), .v = shape(2, t)},
                            {.y = MutableView::host(nullptr, DType::bf16, {8, s, depth})}, {}, {},
                            AttentionCall({.name = "execution"}).on(GetParam()));
        // 1 MiB a thread, and what parts of the keys take where few rows see many.
        EXPECT_LE(made.workspace_bytes, threads * (1 << 20) + (1 << 19))
            << s << " " << t << " " << depth << ", " << threads << " threads";
        return made.dispatch;
      };
      // The bits follow from the blocks, so that they are the same on any machine.
      const Dispatch few = plan(2), many = plan(192);
      EXPECT_EQ(few.block_sizes, many.block_sizes) << s << " " << t << " " << depth;
      EXPECT_EQ(few.knobs.front(), many.knobs.front()) << "parts";
    }
  }
}

TEST_P(Attention, TheEstimateCountsTheKeysThatQueriesSee) {
  for (const auto& [s, t] : {std::pair<std::int64_t, std::int64_t>{7, 7}, {5, 12}, {12, 5}}) {
    for (const Causal causal : {Causal::no, Causal::lower_right, Causal::upper_left}) {
      for (const std::int64_t left : {-1, 0, 3, 100}) {
        for (const std::int64_t right : {-1, 0, 2}) {
          const attention::Options options{
              .causal = causal, .window_left = left, .window_right = right};
          std::int64_t pairs = 0;
          for (std::int64_t i = 0; i < s; ++i) {
            const std::int64_t p = causal == Causal::upper_left ? i : i + t - s;
            for (std::int64_t j = 0; j < t; ++j) {
              pairs += (causal == Causal::no || j <= p) && (left < 0 || j >= p - left) &&
                       (right < 0 || j <= p + right);
            }
          }
          AttentionCall call({.name = "cost", .batch = {2}, .s = s, .t = t, .e = 5});
          const auto cost =
              attention::cost_estimate(attention_context(), Pass::forward, call.inputs(), {}, {},
                                       options, call.on(GetParam()));
          // A product and a sum for each of 8 and 5 elements, in 2 sequences of 2 heads.
          EXPECT_EQ(cost.flops, 2 * 2 * pairs * 2 * (8 + 5))
              << s << " " << t << " " << static_cast<int>(causal) << " " << left << " " << right;
        }
      }
    }
  }
}

TEST(AttentionOrder, TheHostServesACallThatNamesNothing) {
  AttentionCall call({.name = "default"});
  const auto result = attention::forward(attention_context(), call.inputs());
  EXPECT_EQ(result.dispatch.implementation, "eigen");
}

INSTANTIATE_TEST_SUITE_P(Implementations, Attention,
                         testing::ValuesIn(wanted_of(attention::implementations())),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Attention);

}  // namespace
}  // namespace tessera::test
