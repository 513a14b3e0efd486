// SPDX-License-Identifier: Apache-2.0
// What is asked for is what is computed: every subset of the outputs and of the gradients,
// accumulation against a separate addition, and cotangents under each reduction.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

class Subsets : public ImplementationTest {};
class SubsetsOfOperator : public OperatorTest {
 protected:
  static void run(Pass pass, Case c) {
    c.op = GetParam().op;
    run_case(GetParam().implementation, pass, c);
  }
  /// Bits of every set of the operator's gradients.
  static unsigned sets_of_gradients() { return 1u << GetParam().op->gradients().size(); }
};

Case small(const std::string& name) {
  Case c;
  c.name = "subsets_" + name;
  c.b = tiny() ? 4 : 19;
  c.h = tiny() ? 3 : 21;
  c.v = tiny() ? 29 : 143;
  c.bias = true;
  c.labels = Labels::some_ignored;
  c.options.logsumexp_weight = 1e-2f;
  return c;
}

TEST_P(SubsetsOfOperator, EverySubsetOfOutputs) {
  for (unsigned outputs = 0; outputs <= all_outputs; ++outputs) {
    Case c = small("outputs_" + std::to_string(outputs));
    c.outputs = outputs;
    run(Pass::forward, c);
    // The gradients do not depend on what else is wanted; a few combinations show it.
    if (outputs % 21 == 0) run(Pass::value_and_grad, c);
  }
}

TEST_P(SubsetsOfOperator, EverySubsetOfGradients) {
  for (const bool accumulate : {false, true}) {
    for (unsigned gradients = 1; gradients < sets_of_gradients(); ++gradients) {
      for (const DType type : {DType::f32, DType::bf16}) {
        Case c = small("gradients_" + std::to_string(gradients) + to_string(type) +
                       (accumulate ? "_accumulate" : ""));
        c.gradients = gradients;
        c.x_type = c.w_type = type;
        c.outputs = gradients % 2 == 0 ? 0u : unsigned{lse_bit};
        c.accumulate = accumulate;
        run(Pass::backward, c);
        run(Pass::value_and_grad, c);
      }
    }
  }
}

/// Each gradient is added to or overwritten by itself, whatever the others are: what is overwritten
/// is poison before. One shape, so that a prepared call of other flags would be taken for this one.
TEST_P(SubsetsOfOperator, EveryMixOfAccumulation) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (unsigned mask = 0; mask < sets_of_gradients(); ++mask) {
      Case c = small("mix_" + std::to_string(mask) + to_string(type));
      c.x_type = c.w_type = type;
      c.accumulate = mask;
      run(Pass::backward, c);
      run(Pass::value_and_grad, c);
    }
  }
}

TEST_P(SubsetsOfOperator, CotangentsUnderEachReduction) {
  for (const auto reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    for (const auto dloss : {Cotangent::none, Cotangent::given, Cotangent::stride0}) {
      for (const auto dlse : {Cotangent::none, Cotangent::given, Cotangent::stride0}) {
        Case c =
            small(std::string("cotangents_") + to_string(reduction) +
                  std::to_string(static_cast<int>(dloss)) + std::to_string(static_cast<int>(dlse)));
        c.options.reduction = reduction;
        c.dloss = dloss;
        c.dlse = dlse;
        c.weight = Weights::signed_and_zero;
        run(Pass::backward, c);
        run(Pass::value_and_grad, c);
      }
    }
  }
}

/// EveryMixOfAccumulation where sums of several chunks of rows, or ranges of the vocabulary, meet
/// in the views.
TEST_P(Subsets, MixesOfAccumulationInChunks) {
  if (tiny() || GetParam() == "reference") return;  // which holds everything at once
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const unsigned mask : {grad_x_bit | grad_bias_bit, unsigned{grad_w_bit}}) {
      for (const std::size_t mebibytes : {1, 3}) {
        Case c = small("mix_in_chunks_" + std::to_string(mask) + to_string(type));
        c.b = 700;
        c.h = 40;
        c.v = 1501;
        c.x_type = c.w_type = type;
        c.accumulate = mask;
        c.workspace_bytes = mebibytes << 20;
        run_case(GetParam(), Pass::value_and_grad, c);
      }
    }
  }
}

/// What the calls that return owned results give for each name in `wants`.
TEST_P(Subsets, OwnedResultsHoldWhatIsWanted) {
  Case c = small("owned");
  const Expected& e = expected_of(c);
  Arguments arguments(shared_context(), c, e.problem);
  lce::ExecutionOptions execution;
  execution.implementation = GetParam();
  for (unsigned mask = 0; mask < 512; mask += mask < 64 ? 7 : 37) {
    LossOptions options = c.options;
    auto bit = [&](int i) { return (mask >> i & 1u) != 0; };
    options.wants = {.lse = bit(0),
                     .argmax = bit(1),
                     .label_logprob = bit(2),
                     .entropy = bit(3),
                     .z_loss = bit(4),
                     .statistics = bit(5),
                     .grad_x = bit(6),
                     .grad_w = bit(7),
                     .grad_bias = bit(8)};
    const bool gradients = mask >> 6 != 0;
    const auto r =
        gradients ? lce::value_and_grad(shared_context(), arguments.inputs<lce::Operator>(),
                                        options, execution)
                  : lce::forward(shared_context(), arguments.inputs<lce::Operator>(Pass::forward),
                                 options, execution);
    EXPECT_EQ(r.dispatch.implementation, GetParam());
    EXPECT_TRUE(r.loss);
    EXPECT_EQ(static_cast<bool>(r.lse), bit(0)) << mask;
    EXPECT_EQ(static_cast<bool>(r.argmax), bit(1)) << mask;
    EXPECT_EQ(static_cast<bool>(r.label_logprob), bit(2)) << mask;
    EXPECT_EQ(static_cast<bool>(r.entropy), bit(3)) << mask;
    EXPECT_EQ(static_cast<bool>(r.z_loss), bit(4)) << mask;
    EXPECT_EQ(static_cast<bool>(r.statistics), bit(5)) << mask;
    EXPECT_EQ(static_cast<bool>(r.grad_x), bit(6)) << mask;
    EXPECT_EQ(static_cast<bool>(r.grad_w), bit(7)) << mask;
    EXPECT_EQ(static_cast<bool>(r.grad_bias), bit(8)) << mask;
    EXPECT_NEAR(r.loss.item(), e.values.loss[0], e.tolerance.loss[0]) << mask;
    if (bit(7)) {
      // In memory as w is: [V,H] here, so column j of w is contiguous.
      EXPECT_EQ(r.grad_w.extents(), (Dims{c.h, c.v}));
    }
  }
}

/// Two micro-batches accumulated into one gradient are the batch, and the second call alone is what
/// accumulation added.
TEST_P(Subsets, AccumulationIsASeparateAddition) {
  Case c = small("accumulation");
  c.b = tiny() ? 4 : 24;
  c.options.reduction = Reduction::sum;
  const Expected& e = expected_of(c);
  Context& context = shared_context();
  Arguments arguments(context, c, e.problem);
  const lce::Inputs whole = arguments.inputs<lce::Operator>();
  lce::ExecutionOptions execution;
  execution.implementation = GetParam();

  const std::int64_t half = c.b / 2;
  std::vector<float> gradient(static_cast<std::size_t>(c.h * c.v), 0.0f), alone = gradient,
                                                                          first = gradient;
  auto run = [&](int part, std::vector<float>& to, bool accumulate) {
    lce::Inputs in = whole;
    const auto* x = static_cast<const float*>(whole.x.host_data()) + part * half * c.h;
    const auto* labels = static_cast<const std::int32_t*>(whole.labels.host_data()) + part * half;
    in.x = View::host(x, {half, c.h});
    in.labels = View::host(labels, {half});
    lce::Gradients gradients;
    gradients.grad_w = MutableView::host(to.data(), {c.h, c.v});
    gradients.accumulate = accumulate;
    float loss = 0;
    Outputs outputs;
    outputs.loss = MutableView::host(&loss, {});
    lce::value_and_grad(context, in, outputs, gradients, c.options, execution).wait();
  };
  run(0, gradient, false);
  first = gradient;
  run(1, alone, false);
  run(1, gradient, true);
  const auto tolerance = gradient_tolerance(e.problem, e.values, e.gradients, e.tolerance, {});
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double sum = static_cast<double>(first[i]) + alone[i];
    ASSERT_NEAR(gradient[i], sum, tolerance.grad_w[i % static_cast<std::size_t>(c.v)]) << i;
  }
  for (std::int64_t j = 0; j < c.v; ++j) {
    double squares = 0.0;
    for (std::int64_t k = 0; k < c.h; ++k) {
      const auto i = static_cast<std::size_t>(k * c.v + j);
      squares += std::pow(gradient[i] - e.gradients.grad_w[i], 2.0);
    }
    EXPECT_LE(std::sqrt(squares), 2.0 * tolerance.grad_w[static_cast<std::size_t>(j)]) << j;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SubsetsOfOperator,
                         testing::ValuesIn(operators_and_implementations(takes_any_shape)),
                         operator_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SubsetsOfOperator);

INSTANTIATE_TEST_SUITE_P(All, Subsets,
                         testing::ValuesIn(implementations_of<lce::Operator>(takes_any_shape)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Subsets);

}  // namespace
}  // namespace tessera::test
