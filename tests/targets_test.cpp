// SPDX-License-Identifier: Apache-2.0
// Soft targets beside labels: the same bits where they say the same, and what becomes of labels and
// targets that only the run itself can see to be wrong. Values of soft targets are the matrix's
// group `targets`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "host/softmax_cross_entropy/request.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/runner.hpp"
#include "tests/support/small_call.hpp"

namespace tessera {
namespace {

using test::Given;
using test::SmallCall;

template <class Operator>
std::vector<std::string> implementations() {
  auto names = test::implementations_of<Operator>(test::takes_any_shape);
  std::erase_if(names, [](const auto& name) {
    return test::test_operator<Operator>().why_absent(test::shared_context(), name).has_value();
  });
  return names;
}

template <class Operator>
typename Operator::Result value_and_grad_on(const std::string& implementation,
                                            const typename Operator::Inputs& inputs,
                                            const LossOptions& options) {
  typename Operator::ExecutionOptions execution;
  execution.implementation = implementation;
  return value_and_grad(test::shared_context(), inputs, options_with<Operator>(options), execution);
}

void expect_same_bits(const HostTensor& a, const HostTensor& b, const char* name) {
  ASSERT_EQ(a.view().extents(), b.view().extents()) << name;
  ASSERT_EQ(static_cast<bool>(a), static_cast<bool>(b)) << name;
  if (!a) return;
  EXPECT_EQ(std::memcmp(a.view().host_data(), b.view().host_data(),
                        static_cast<std::size_t>(a.view().size()) * size_of(a.view().dtype())),
            0)
      << name;
}

TEST(Targets, OnePairOfProbabilityOneIsALabelToTheBit) {
  for_each_loss([&]<class Operator>(std::type_identity<Operator>) {
    for (const auto& implementation : implementations<Operator>()) {
      for (const auto& [rows, columns, smoothing] :
           {std::tuple{6, 5, 0.0f}, {6, 5, 0.3f}, {70, 1500, 0.0f}}) {
        SCOPED_TRACE(std::string(OperatorTraits<Operator>::name) + " " + implementation);
        std::vector<std::int32_t> labels;
        for (int row = 0; row < rows; ++row) labels.push_back(row == 2 ? -100 : 13 * row % columns);
        SmallCall<Operator> call({2, rows / 2}, 40, columns, labels);
        call.options.label_smoothing = smoothing;
        call.options.logsumexp_weight = 0.1f;
        call.options.logit_soft_cap = 3.0f;
        call.options.wants = every_output<Operator>();
        auto inputs = call.inputs(Pass::value_and_grad, Given::all);
        const auto by_label = value_and_grad_on<Operator>(implementation, inputs, call.options);
        const std::vector<float> ones(labels.size(), 1.0f);
        inputs.labels = {};
        inputs.target_indices = View::host(call.labels.data(), {2, rows / 2, 1});
        inputs.target_probs = View::host(ones.data(), {2, rows / 2, 1});
        const auto by_pair = value_and_grad_on<Operator>(implementation, inputs, call.options);
        for (const auto& output : OperatorTraits<Operator>::outputs) {
          expect_same_bits(by_pair.*output.owned, by_label.*output.owned, output.name);
        }
        for (const auto& gradient : OperatorTraits<Operator>::gradients) {
          expect_same_bits(by_pair.*gradient.owned, by_label.*gradient.owned, gradient.name);
        }
      }
    }
  });
}

TEST(Targets, ARowWithoutPairsIsIgnored) {
  for_each_loss([&]<class Operator>(std::type_identity<Operator>) {
    for (const auto& implementation : implementations<Operator>()) {
      SCOPED_TRACE(std::string(OperatorTraits<Operator>::name) + " " + implementation);
      SmallCall<Operator> call({2, 3}, 4, 5, std::vector<std::int32_t>(6));
      auto inputs = call.inputs(Pass::value_and_grad, Given::required);
      inputs.labels = {};
      inputs.target_indices = View::host(call.labels.data(), {2, 3, 0});
      inputs.target_probs = View::host(call.numbers.at("target_probs").data(), {2, 3, 0});
      call.options.wants.argmax = true;
      const auto result = value_and_grad_on<Operator>(implementation, inputs, call.options);
      EXPECT_EQ(result.loss.item(), 0.0f);
      for (const auto argmax : result.argmax.template as<std::int32_t>()) EXPECT_EQ(argmax, -1);
    }
  });
}

namespace sce = softmax_cross_entropy;

/// Runs a call whose targets no check has seen, as those in device memory are.
void expect_second_row_is_bad(sce::Inputs inputs, const std::string& what) {
  const std::vector<float> logits(4, 0.0f);
  std::vector<float> loss(2);
  inputs.logits = View::host(logits.data(), {2, 2});
  const auto call = operators::bind<sce::Operator>(Pass::forward, inputs, {.loss = loss}, {},
                                                   {.reduction = Reduction::none}, {});
  const auto context = std::make_shared<ContextState>(ContextOptions{}, nullptr);
  const auto run = [&](const operators::Request& request) {
    for (const auto* row :
         dispatch::select_rows(call.op->behind().table(), {"reference", "eigen"})) {
      SCOPED_TRACE(row->name());
      std::fill(loss.begin(), loss.end(), -1.0f);
      dispatch::Attempt attempt;
      const auto state = row->run(context, request, attempt);
      EXPECT_FLOAT_EQ(loss[0], std::log(2.0f));
      EXPECT_TRUE(std::isnan(loss[1]));
      test::expect_error(ErrorCode::label_out_of_range, {what}, [&] { state->wait_once(); });
    }
  };
  // A question's targets are not looked at.
  call.op->behind().check(*context, operators::Call(call), operators::Form::question, run);
}

TEST(Targets, ALabelOutOfRangeIsAnErrorOnceTheOutputsAreWritten) {
  const std::vector<std::int32_t> labels = {1, 7};
  expect_second_row_is_bad({.labels = labels}, "row 1 is 7; the vocabulary is 0 to 1");
}

TEST(Targets, AnIndexOutOfRangeIsAnErrorOnceTheOutputsAreWritten) {
  const std::vector<std::int32_t> words = {0, 1, 1, 9};
  const std::vector<float> probs = {0.5f, 0.5f, 0.5f, 0.5f};
  expect_second_row_is_bad({.target_indices = View::host(words.data(), {2, 2}),
                            .target_probs = View::host(probs.data(), {2, 2})},
                           "target_indices: row 1 has 9");
}

TEST(Targets, ANegativeProbabilityIsAnErrorOnceTheOutputsAreWritten) {
  const std::vector<float> q = {0.25f, 0.75f, 1.5f, -0.5f};
  expect_second_row_is_bad({.targets = View::host(q.data(), {2, 2})},
                           "targets: row 1 has -0.5 for word 1");
}

}  // namespace
}  // namespace tessera
