// SPDX-License-Identifier: Apache-2.0
// A call as a value (host/operators/call.hpp) is the operator's own.
#include "host/operators/call.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "host/operators/bind.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/small_call.hpp"

namespace tessera::test {
namespace {

template <class Operator>
class CallTest : public testing::Test {
 protected:
  SmallCall<Operator> call_{{2, 3}, 4, 5, {0, 4, -100, 1, 2, 3}};
  Context context_{ContextOptions{.host_only = true, .warning_handler = [](const auto&) {}}};
};

TYPED_TEST_SUITE(CallTest, OperatorTypes, OperatorName);

TYPED_TEST(CallTest, WritesWhatTheTypedCallReturns) {
  using Traits = OperatorTraits<TypeParam>;
  const auto& op = operators::description(Traits::name);
  operators::Call call(op, Pass::value_and_grad);
  const auto inputs = this->call_.inputs(Pass::value_and_grad, Given::all);
  std::vector<std::vector<float>> memory;
  const auto room = [&](const Dims& extents) {
    memory.emplace_back(static_cast<std::size_t>(extents.product()), -77.0f);
    return MutableView::host(memory.back().data(), extents);
  };
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    EXPECT_STREQ(op.inputs[i].name, Traits::inputs[i].name);
    call.inputs[i] = inputs.*Traits::inputs[i].view;
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (op.outputs[i].types != ElementTypes::f32) continue;
    call.outputs[i] = room(this->call_.extents(op.outputs[i].shape));
  }
  for (std::size_t i = 0; i < op.gradients.size(); ++i) {
    call.gradients[i] = room(call.inputs[op.gradients[i].of].extents());
  }
  EXPECT_FALSE(call.set("nonsense", 1.0f));
  EXPECT_TRUE(call.set("logit_scale", 0.5f));
  call.implementation = "reference";
  Completion done = run(this->context_, call);
  done.wait();
  EXPECT_EQ(done.dispatch().implementation, "reference");

  auto options = this->call_.all_options();
  loss_options(options).wants = every_output<TypeParam>();
  loss_options(options).logit_scale = 0.5f;
  typename TypeParam::ExecutionOptions execution;
  execution.implementation = "reference";
  const auto owned = value_and_grad(this->context_, inputs, options, execution);
  const auto expect_same = [](const MutableView& view, const HostTensor& tensor, const char* name) {
    const auto values = tensor.as<float>();
    const auto* got = static_cast<const float*>(view.host_data());
    EXPECT_TRUE(std::equal(values.begin(), values.end(), got)) << name;
  };
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (!call.outputs[i]) continue;
    expect_same(call.outputs[i], owned.*Traits::outputs[i].owned, op.outputs[i].name);
  }
  for (std::size_t i = 0; i < op.gradients.size(); ++i) {
    expect_same(call.gradients[i], owned.*Traits::gradients[i].owned, op.gradients[i].name);
  }
}

TYPED_TEST(CallTest, IsWhatThePublicStructsSay) {
  using Traits = OperatorTraits<TypeParam>;
  const auto& op = operators::description(Traits::name);
  typename TypeParam::Gradients gradients;
  set_accumulate(gradients.accumulate, 1u << (Traits::gradients.size() - 1));
  typename TypeParam::Options options;
  typename TypeParam::ExecutionOptions execution;
  std::vector<OptionValue> values;
  for (const auto& option : Traits::options) {
    values.push_back(other_value(option, option.value(options)));
    option.set(options, values.back());
  }
  for (const auto& option : Traits::execution_options) {
    values.push_back(other_value(option, option.value(execution)));
    option.set(execution, values.back());
  }
  loss_options(options).wants.argmax = true;
  const auto axis = TypeParam::BlockSizes::axes()[0];
  execution.block_sizes.emplace().*axis.value = 48;
  execution.block_size = 64;
  execution.knobs = {{"slices", 3}};
  execution.workspace_bytes = 12345;
  execution.implementation = "eigen";
  const auto call =
      operators::bind<TypeParam>(Pass::backward, {}, {}, gradients, options, execution);
  EXPECT_EQ(call.op, &op);
  EXPECT_EQ(std::vector<OptionValue>(call.options.begin(), call.options.end()), values);
  ASSERT_TRUE(call.block_sizes);
  EXPECT_EQ(operators::blocks_as<typename TypeParam::BlockSizes>(call.block_sizes),
            execution.block_sizes);
  EXPECT_EQ(call.block_size, 64);
  EXPECT_EQ(call.knobs, execution.knobs);
  EXPECT_EQ(call.workspace_bytes, execution.workspace_bytes);
  EXPECT_EQ(call.implementation.names(), std::vector<std::string>{"eigen"});
  for (std::size_t i = 0; i < op.gradients.size(); ++i) {
    EXPECT_EQ(call.accumulate[i], i + 1 == op.gradients.size());
    EXPECT_TRUE(call.wants_gradients[i]);
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const std::string name = op.outputs[i].name;
    EXPECT_EQ(call.wants[i], name == "loss" || name == "argmax") << name;
  }
}

TEST(Descriptions, OfAnOperatorThatDoesNotExist) {
  expect_error(ErrorCode::invalid_argument,
               {"there is no operator 'matmul'; there are: linear_cross_entropy, "},
               [] { operators::description("matmul"); });
}

}  // namespace
}  // namespace tessera::test
