// SPDX-License-Identifier: Apache-2.0
// A call as a value (host/operators/call.hpp) is the operator's own.
#include "host/operators/call.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

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

TYPED_TEST(CallTest, HandsOnHowItRuns) {
  using Traits = OperatorTraits<TypeParam>;
  const auto& op = operators::description(Traits::name);
  operators::Call call(op, Pass::backward);
  for (std::size_t i = 0; i < op.options.size(); ++i) {
    call.options[i] = other_value(op.options[i], op.options[i].standard);
  }
  call.block_sizes = {{op.block_sizes.front(), 48}};
  call.knobs = {{"slices", 3}};
  call.workspace_bytes = 12345;
  call.accumulate.back() = true;
  const operators::Typed<TypeParam> typed(call);
  for (std::size_t i = 0; i < Traits::options.size(); ++i) {
    EXPECT_EQ(Traits::options[i].value(typed.options), call.options[i]) << op.options[i].name;
  }
  for (std::size_t i = 0; i < Traits::execution_options.size(); ++i) {
    const std::size_t at = Traits::options.size() + i;
    EXPECT_EQ(Traits::execution_options[i].value(typed.execution), call.options[at])
        << op.options[at].name;
  }
  ASSERT_TRUE(typed.execution.block_sizes);
  EXPECT_EQ(to_named(*typed.execution.block_sizes).front(), call.block_sizes.front());
  EXPECT_EQ(typed.execution.knobs, call.knobs);
  EXPECT_EQ(typed.execution.workspace_bytes, call.workspace_bytes);
  for (std::size_t i = 0; i < op.gradients.size(); ++i) {
    EXPECT_EQ(Traits::accumulates(typed.gradients, i), i + 1 == op.gradients.size());
  }
}

TEST(Descriptions, OfAnOperatorThatDoesNotExist) {
  try {
    operators::description("matmul");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("there is no operator 'matmul'; there are: "
                        "linear_cross_entropy, "),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::test
