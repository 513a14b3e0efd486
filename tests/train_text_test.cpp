// SPDX-License-Identifier: Apache-2.0
// The example's own half: words, splits, and the hand-written backward of its mixing layers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include "examples/train_text/model.hpp"
#include "examples/train_text/text.hpp"

namespace train_text {
namespace {

TEST(Tokenise, SplitsWordsNumbersAndMarks) {
  EXPECT_EQ(
      tokenise("The king's 12 men, don't; 'tis"),
      (std::vector<std::string>{"the", "king's", "12", "men", ",", "don't", ";", "'", "tis"}));
  EXPECT_TRUE(tokenise(" \n\t").empty());
  EXPECT_EQ(tokenise("a'"), (std::vector<std::string>{"a", "'"}));
}

class CorpusTest : public testing::Test {
 protected:
  void SetUp() override {
    file_ = testing::TempDir() + "train_text_corpus.txt";
    std::ofstream out(file_);
    // 60 blocks of 1000 words; "rare" occurs once.
    for (int i = 0; i < 59999; ++i) out << (i % 3 == 0 ? "a " : i % 3 == 1 ? "b " : "c ");
    out << "rare\n";
  }
  void TearDown() override { std::filesystem::remove(file_); }
  std::string file_;
};

TEST_F(CorpusTest, HoldsOutEveryTwentiethBlock) {
  const Corpus corpus({file_}, 2, 0);
  EXPECT_EQ(corpus.train().size(), 57000u);
  EXPECT_EQ(corpus.held_out().size(), 3000u);
  EXPECT_EQ(corpus.vocab(), 4);  // <unk>, a, b, c
  EXPECT_EQ(corpus.words()[0], "<unk>");
  // Three words of equal frequency and, hardly, the unknown one.
  EXPECT_NEAR(corpus.unigram_perplexity({1, 2, 3}), 3.0, 1e-3);
}

TEST_F(CorpusTest, KeepsTheMostFrequentWords) {
  EXPECT_EQ(Corpus({file_}, 1, 3).vocab(), 3);
  EXPECT_THROW(Corpus({file_ + ".missing"}, 1, 0), std::invalid_argument);
}

TEST(Examples, AreTheWordsBefore) {
  const std::vector<std::int32_t> words{10, 11, 12, 13, 14, 15};
  const auto all = evenly(words, 100, 2);
  EXPECT_EQ(all.labels, (std::vector<std::int32_t>{12, 13, 14, 15}));
  EXPECT_EQ(all.contexts, (std::vector<std::int32_t>{10, 11, 11, 12, 12, 13, 13, 14}));
  const auto part = slice(all, 1, 2, 2);
  EXPECT_EQ(part.labels, (std::vector<std::int32_t>{13, 14}));
  EXPECT_EQ(part.contexts, (std::vector<std::int32_t>{11, 12, 12, 13}));
}

ModelOptions small_model() {
  ModelOptions options;
  options.vocab = 40;
  options.context = 3;
  options.embedding = 4;
  options.hidden = 8;
  return options;
}

Examples small_examples() {
  std::mt19937_64 random(3);
  std::vector<std::int32_t> words(500);
  for (auto& word : words) word = static_cast<std::int32_t>(random() % 40);
  Examples examples;
  sample(words, 16, small_model().context, random, examples);
  return examples;
}

/// Loss along a direction by central differences against the gradient's product with it, for every
/// parameter: it would show a wrong factor or a missing term in any layer. `call` is a
/// value_and_grad.
void expect_differences(Model& model, const std::function<Loss()>& call) {
  // The output layer starts small, which makes the other layers' gradients too small for an f32
  // loss to resolve.
  model.all()[5]->value *= 10.0f;
  const std::size_t count = model.all().size();
  ASSERT_EQ(count, 7u);
  for (std::size_t i = 0; i < count; ++i) {
    auto& parameter = *model.all()[i];
    call();
    const Model::Matrix grad = parameter.grad;
    // Along the gradient itself the loss changes most, so the f32 loss resolves the difference.
    const double norm = static_cast<double>(grad.norm());
    ASSERT_GT(norm, 0.0) << "parameter " << i;
    const Model::Matrix kept = parameter.value;
    const auto loss_at = [&](double distance) {
      parameter.value = kept + static_cast<float>(distance / norm) * grad;
      return call().total;
    };
    const auto slope = [&](double h) { return (loss_at(h) - loss_at(-h)) / (2.0 * h); };
    // Richardson: the error of h^2 cancels between two distances.
    const double difference = (4.0 * slope(0.02) - slope(0.04)) / 3.0;
    parameter.value = kept;
    // The loss is near 4, where an f32 has a spacing of 2^-21, so each loss is off by 5e-7 at most
    // and the difference by (4 / 0.02 + 1 / 0.04) / 3 * 5e-7 = 4e-5; an error of h^4 remains.
    EXPECT_NEAR(difference, norm, 5e-4 * norm + 4e-5) << "parameter " << i;
  }
}

TEST(ModelTest, GradientsAgreeWithDifferences) {
  tessera::Context context(tessera::ContextOptions{.host_only = true});
  tessera::LossOptions loss;
  loss.logsumexp_weight = 0.01f;
  tessera::linear_cross_entropy::ExecutionOptions execution;
  execution.implementation = "reference";
  const Examples examples = small_examples();
  Model model(small_model());
  expect_differences(model,
                     [&] { return model.value_and_grad(context, examples, loss, execution); });
}

TEST(ModelTest, GradientsOfAStudentAgreeWithDifferences) {
  tessera::Context context(tessera::ContextOptions{.host_only = true});
  tessera::linear_distillation::ExecutionOptions execution;
  execution.implementation = "reference";
  const Examples examples = small_examples();
  ModelOptions wide = small_model();
  wide.hidden = 12;
  wide.seed = 9;
  Model teacher(wide);
  teacher.all()[5]->value *= 20.0f;  // sure of something
  const Model::Matrix kept = teacher.all()[5]->value;
  Model model(small_model());
  expect_differences(model, [&] {
    return model.follow(teacher, context, examples, {.temperature = 1.5f, .alpha = 0.6f},
                        execution);
  });
  EXPECT_EQ(teacher.all()[5]->value, kept);
}

}  // namespace
}  // namespace train_text
