// SPDX-License-Identifier: Apache-2.0
// What is wrong of soft targets, on every operator that takes labels.
#include "tests/support/misuse.hpp"

namespace tessera::misuse {
namespace {

/// Three pairs a row, correct, in place of the labels.
template <class Op>
struct Pairs {
  static constexpr std::int64_t K = 3;

  explicit Pairs(Call<Op>& c) : call(c) {
    call.in.labels = {};
    call.in.target_indices = View::host(call.small.words.data(), {B, K});
    call.in.target_probs = View::host(call.data("target_probs"), {B, K});
  }
  std::int32_t& word(std::int64_t row, std::int64_t pair) {
    return call.small.words[static_cast<std::size_t>(row * K + pair)];
  }
  float& probability(std::int64_t row, std::int64_t pair) {
    return call.data("target_probs")[row * K + pair];
  }

  Call<Op>& call;
};

template <class Op>
void give_dense(Call<Op>& c) {
  c.in.labels = {};
  c.in.targets = View::host(c.data("targets"), {B, V});
}

template <class Op>
std::vector<Case<Op>> form_cases() {
  using C = Call<Op>;
  return {
      {"Nothing",
       [](C& c) { c.in.labels = {}; },
       {"labels is not given", "target_indices", "targets", "one of them"}},
      {"LabelsAndDense",
       [](C& c) {
         const View labels = c.in.labels;
         give_dense(c);
         c.in.labels = labels;
       },
       {"labels and targets are both given"}},
      {"LabelsAndPairs",
       [](C& c) {
         const View labels = c.in.labels;
         Pairs<Op> pairs(c);
         c.in.labels = labels;
       },
       {"labels and target_indices are both given"}},
      {"PairsAndDense",
       [](C& c) {
         Pairs<Op> pairs(c);
         give_dense(c);
       },
       {"target_indices and targets are both given"}},
      {"IndicesAlone",
       [](C& c) {
         Pairs<Op> pairs(c);
         c.in.target_probs = {};
       },
       {"target_probs is not given"}},
      {"ProbabilitiesAlone",
       [](C& c) {
         Pairs<Op> pairs(c);
         c.in.target_indices = {};
       },
       {"target_indices is not given"}},
      {"FewerProbabilities",
       [](C& c) {
         Pairs<Op> pairs(c);
         c.in.target_probs = View::host(c.data("target_probs"), {B, 2});
       },
       {"target_probs has shape [4, 2], expected [4, 3]", "the pairs of a row"}},
      {"IndicesWithoutPairs",
       [](C& c) {
         Pairs<Op> pairs(c);
         c.in.target_indices = View::host(c.small.words.data(), {B});
         c.in.target_probs = View::host(c.data("target_probs"), {B});
       },
       {"target_indices has shape [4], expected [4, 4]"}},
      {"DenseOfAnotherVocabulary",
       [](C& c) {
         give_dense(c);
         c.in.targets = View::host(c.data("targets"), {B, V - 1});
       },
       {"targets has shape [4, 4], expected [4, 5]", "the words of the vocabulary"}},
      {"DenseOfAShardAlone",
       [](C& c) {
         c.to_backward();
         give_dense(c);
         c.options.vocab_size_total = 2 * V;
       },
       {"targets has shape [4, 5], expected [4, 10]", "the whole vocabulary (vocab_size_total)"}},
  };
}

template <class Op>
std::vector<Case<Op>> value_cases() {
  using C = Call<Op>;
  constexpr auto code = ErrorCode::label_out_of_range;
  return {
      {"IndexTooLarge",
       [](C& c) { Pairs<Op>(c).word(2, 1) = 5; },
       {"target_indices: row 2 has 5", "0 to 4", "ignore_index is -100",
        "correct the pair, or mark padding with ignore_index"},
       code},
      {"IndexNegative",
       [](C& c) { Pairs<Op>(c).word(3, 0) = -1; },
       {"target_indices: row 3 has -1"},
       code},
      {"IndexOfLeadingAxes",
       [](C& c) {
         c.set_leading({2, 2});
         Pairs<Op>(c).word(3, 2) = 77;
         c.in.target_indices = View::host(c.small.words.data(), {2, 2, 3});
         c.in.target_probs = View::host(c.data("target_probs"), {2, 2, 3});
       },
       {"target_indices: row 3 (index [1, 1]) has 77"},
       code},
      {"IndexTwice",
       [](C& c) {
         Pairs<Op> pairs(c);
         pairs.word(1, 2) = pairs.word(1, 0);
       },
       {"target_indices: row 1 has 1 more than once", "add up"}},
      {"NegativeProbability",
       [](C& c) { Pairs<Op>(c).probability(1, 1) = -0.25f; },
       {"target_probs: row 1 has -0.25 for word 2", "least probability is 0", "correct the pair"},
       code},
      {"NaNProbability",
       [](C& c) { Pairs<Op>(c).probability(0, 2) = nan_value; },
       {"target_probs: row 0 has nan for word 2"},
       code},
      {"NegativeOfAWord",
       [](C& c) {
         give_dense(c);
         c.data("targets")[V + 3] = -1.0f;
       },
       {"targets: row 1 has -1 for word 3", "least probability is 0; correct the probability"},
       code},
      {"NaNOfAWord",
       [](C& c) {
         give_dense(c);
         c.data("targets")[3 * V] = nan_value;
       },
       {"targets: row 3 has nan for word 0"},
       code},
  };
}

std::vector<Refused> all_cases() {
  std::vector<Refused> all;
  for_each_loss([&]<class Op>(std::type_identity<Op>) {
    add_cases<Op>(all, form_cases<Op>());
    add_cases<Op>(all, value_cases<Op>());
  });
  return all;
}

class TargetMisuse : public testing::TestWithParam<Refused> {};
TEST_P(TargetMisuse, IsRefused) { GetParam().expect(); }
INSTANTIATE_TEST_SUITE_P(All, TargetMisuse, testing::ValuesIn(all_cases()), refused_name);

TEST(TargetMisuse, PaddingIsNotRead) {
  Context context(ContextOptions{.host_only = true, .warning_handler = [](const auto&) {}});
  for_each_loss([&]<class Op>(std::type_identity<Op>) {
    SCOPED_TRACE(OperatorTraits<Op>::name);
    Call<Op> call;
    Pairs<Op> pairs(call);
    pairs.word(1, 1) = pairs.word(1, 2) = -100;
    pairs.probability(1, 1) = pairs.probability(1, 2) = nan_value;
    EXPECT_NO_THROW(call.run(context));
  });
}

/// What a call warns of.
template <class Op, class Change>
std::vector<std::string> warnings_of(const Change& change) {
  std::vector<std::string> warnings;
  Context context(ContextOptions{
      .host_only = true, .warning_handler = [&](const auto& text) { warnings.push_back(text); }});
  Call<Op> call;
  call.execution.implementation = "reference";
  change(call);
  call.run(context);
  return warnings;
}

TEST(TargetMisuse, SumsThatAreUnusualAreAWarning) {
  for_each_loss([&]<class Op>(std::type_identity<Op>) {
    using C = Call<Op>;
    SCOPED_TRACE(OperatorTraits<Op>::name);
    // SmallCall's probabilities are below 1/3.
    EXPECT_TRUE(warnings_of<Op>([](C& c) { Pairs<Op> pairs(c); }).empty());
    const auto above = warnings_of<Op>([](C& c) { Pairs<Op>(c).probability(2, 0) = 1.5f; });
    ASSERT_EQ(above.size(), 1u);
    EXPECT_NE(above[0].find("target_probs: some rows add up to more than 1"), std::string::npos);
    const auto ones = [](C& c) {
      give_dense(c);
      for (std::int64_t i = 0; i < B * V; ++i) c.data("targets")[i] = 1.0f / V;
    };
    EXPECT_TRUE(warnings_of<Op>(ones).empty());
    const auto other = warnings_of<Op>([&](C& c) {
      ones(c);
      c.data("targets")[7] = 0.0f;
    });
    ASSERT_EQ(other.size(), 1u);
    EXPECT_NE(other[0].find("targets: some rows do not add up to 1"), std::string::npos);
  });
}

}  // namespace
}  // namespace tessera::misuse
