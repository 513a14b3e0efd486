// SPDX-License-Identifier: Apache-2.0
// That the calls which scripts/test.sh makes on devices leave out no pair of features: a call that
// is not made fails no test.
#include "tests/support/pairs.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {

/// Some of what pairs.cpp tells apart, in words of this test's own, the pass first. Each of the
/// first `paired` meets each: all of it, or, where the operator has kernels of its own, what they
/// read.
std::vector<std::string> features(const TestOperator& op, const std::string& group, Pass pass,
                                  const Case& c, std::size_t& paired) {
  const auto text = [](const char* name, auto value) {
    return std::string(name) + "=" + std::to_string(static_cast<int>(value));
  };
  std::vector<std::string> all = op.own_features(c);
  all.insert(all.begin(), std::string("pass=") + to_string(pass));
  paired = all.size() + 2;
  for (auto& feature :
       {text("cap", c.options.logit_soft_cap != 0.0f), text("reduction", c.options.reduction),
        text("x", c.x_type), text("w", c.w_type), text("layout", c.w_layout),
        text("targets", c.targets), text("bias", c.bias), text("class_weight", c.class_weight)}) {
    all.push_back(feature);
  }
  if (op.own_features(c).empty()) paired = all.size();
  if (!c.block_sizes) all.push_back("group=" + group);
  return all;
}

/// Of the calls on the implementation, what one has, and what two that are paired have together; a
/// group with the pass alone.
std::set<std::string> features_of(const TestOperator& op, const std::string& implementation,
                                  bool in_pairs, bool chosen) {
  std::set<std::string> all;
  for (const std::string& group : group_names(op)) {
    if (group == mixed_group && !chosen) continue;  // it stands for the others
    for (const Case& c : cases_of(op, group)) {
      for (const Pass pass :
           {Pass::forward, Pass::backward, Pass::value_and_grad, Pass::forward_partial}) {
        if (!can_take(op, implementation, pass, c)) continue;
        if (chosen && !is_in_pairs(op, implementation, pass, c)) continue;
        std::size_t paired = 0;
        const auto of_call = features(op, group, pass, c, paired);
        for (std::size_t i = 0; i < of_call.size(); ++i) {
          all.insert(of_call[i]);
          for (std::size_t j = i + 1; j < of_call.size(); ++j) {
            const bool is_group = of_call[j].starts_with("group=");
            if (is_group ? i == 0 : in_pairs && j < paired) {
              all.insert(of_call[i] + ", " + of_call[j]);
            }
          }
        }
      }
    }
  }
  return all;
}

class PairsTest : public testing::TestWithParam<const TestOperator*> {};

TEST_P(PairsTest, NothingOfTheProductIsLeftOut) {
  if (tiny() || !wants_all()) GTEST_SKIP() << "the environment chooses the calls";
  for (const std::string implementation : {"opencl.cpu", "opencl.simt"}) {
    const bool in_pairs = implementation == "opencl.cpu";
    const auto product = features_of(*GetParam(), implementation, in_pairs, false);
    const auto chosen = features_of(*GetParam(), implementation, in_pairs, true);
    EXPECT_GT(product.size(), 40u);
    for (const auto& item : product) EXPECT_EQ(chosen.count(item), 1u) << implementation << item;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PairsTest, testing::ValuesIn(test_operators()),
                         [](const auto& i) { return std::string(i.param->name()); });

}  // namespace
}  // namespace tessera::test
