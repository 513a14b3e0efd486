// SPDX-License-Identifier: Apache-2.0
// Gradients of f16 by opencl.mma, whose instruction is emulated: dz is f16, times a power of two
// that nothing of the results shows, whatever the cotangent is.
#include <gtest/gtest.h>

#include <cmath>

#include "host/dispatch/knobs.hpp"
#include "host/opencl/runtime.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

class F16Gradients : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!context_.has_device()) GTEST_SKIP() << "no OpenCL device";
    opencl::runtime_of(context_.state())->facts_for_test().bf16_products =
        opencl::Bf16Products::emulated;
  }

  /// f32 gradients, whose own type ends nowhere near.
  static Case case_of(const char* name) {
    Case c;
    c.name = std::string("f16_") + name;
    c.b = 37;
    c.h = 35;
    c.v = 70;
    c.x_type = c.w_type = DType::f16;
    c.grad_x_type = c.grad_w_type = DType::f32;
    c.dloss = Cotangent::given;
    return c;
  }
  static Expected expected_with(const Case& c, double dloss) {
    Expected e;
    e.problem = make_problem(c);
    e.problem.dloss = {dloss};
    e.values = oracle::forward(e.problem);
    e.gradients = oracle::backward(e.problem);
    e.tolerance = value_tolerance(e.problem, e.values);
    return e;
  }
  /// Returns how many rows are treated together.
  std::int64_t check(const Case& c, double dloss) {
    SCOPED_TRACE(c.name + ", dloss " + std::to_string(dloss));
    const Expected e = expected_with(c, dloss);
    Arguments arguments(context_, c, e.problem);
    Results results(context_, c, e, Pass::value_and_grad, matrix_units);
    const std::string named = matrix_units;
    const auto dispatch = c.op->run({context_, named, Pass::value_and_grad, c, arguments, results});
    results.check(arguments);
    return dispatch::value_of(dispatch.knobs, "chunk_rows").value_or(0);
  }

  Context context_{{.warning_handler = [](const std::string&) {}}};
};

TEST_F(F16Gradients, OfAnyCotangent) {
  Case c = case_of("cotangent");
  // The mean over many rows of a loss that is scaled down lies far below f16, a sum of one that is
  // scaled up far beyond.
  for (const double dloss : {1.0, -1.0, 1e-6 / 8192, -1e-30, 0x1p-126, 0x1p-149, 1e4, 1e35, 0.0}) {
    check(c, dloss);
  }
}

/// The scale of logits, not the loss, leaves f16 here, and with it the power of two f32.
TEST_F(F16Gradients, OfAnyScale) {
  for (const float scale : {1e-5f, -3e-3f, 1e-36f}) {
    Case c = case_of("scale");
    c.name += std::to_string(scale);
    c.options.logit_scale = scale;
    check(c, 1.0);
    check(c, 1e9);
  }
}

TEST_F(F16Gradients, OfOneHugeRowAmongOthers) {
  Case c = case_of("z_loss");
  c.data = Data::one_hot_row;
  c.options.logsumexp_weight = 1e3f;
  check(c, 1e-6);
}

/// Each chunk has its power of two, here one of a huge row: sums of several chunks are added.
TEST_F(F16Gradients, OfChunks) {
  Case c = case_of("chunks");
  c.data = Data::one_hot_row;
  c.options.logsumexp_weight = 1e3f;
  c.b = 200;
  c.v = 400;
  c.workspace_bytes = std::size_t{96} << 10;
  // Ranges of the vocabulary inside of the chunks, and outside.
  for (const DType type : {DType::f32, DType::f16}) {
    c.grad_w_type = type;
    c.name += to_string(type);
    const std::int64_t rows = check(c, 1e-6);
    EXPECT_GT(rows, 0);
    EXPECT_LT(rows, c.b);
  }
}

/// Every element of the gradients is the infinity or the NaN that opencl.simt has there.
TEST_F(F16Gradients, OfInfinityAndNaNAreTheSameAsInF32) {
  const Case c = case_of("not_finite");
  for (const double dloss : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    const Expected e = expected_with(c, 1.0);
    auto problem = e.problem;
    problem.dloss = {dloss};
    Arguments arguments(context_, c, problem);
    const auto run = [&](const std::string& implementation) {
      auto results =
          std::make_unique<Results>(context_, c, e, Pass::value_and_grad, implementation);
      c.op->run({context_, implementation, Pass::value_and_grad, c, arguments, *results});
      return results;
    };
    const auto mma = run(matrix_units), simt = run("opencl.simt");
    for (const auto& [name, count] : {std::pair{"grad_x", c.b * c.h}, {"grad_w", c.h * c.v}}) {
      for (std::int64_t i = 0; i < count; ++i) {
        const double got = (*mma)[name].get(i), expected = (*simt)[name].get(i);
        ASSERT_FALSE(std::isfinite(expected));
        ASSERT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
            << name << " " << i << ": " << got << ", not " << expected;
      }
    }
  }
}

TEST_F(F16Gradients, AreServedWhereAllRowsHaveOneCotangent) {
  const auto shape = [](DType type, const Dims& extents) {
    return View::host(nullptr, type, extents);
  };
  struct Call {
    lce::Inputs in{};
    LossOptions options{};
    lce::ExecutionOptions execution{};
    bool grad_bias = false;
  };
  const auto refusal = [&](auto change) -> std::string {
    Call call;
    call.in.x = shape(DType::f16, {21, 35});
    call.in.w = shape(DType::f16, {35, 67});
    call.in.bias = shape(DType::f32, {67});
    call.in.labels = shape(DType::i32, {21});
    call.execution.implementation = {"opencl.mma", "opencl.simt"};
    change(call);
    lce::Gradients gradients;
    gradients.grad_x = MutableView::host(nullptr, DType::f16, {21, 35});
    gradients.grad_w = MutableView::host(nullptr, DType::f16, {35, 67});
    if (call.grad_bias) gradients.grad_bias = MutableView::host(nullptr, DType::f32, {67});
    const auto dispatch = lce::plan(context_, Pass::value_and_grad, call.in, {}, gradients,
                                    call.options, call.execution)
                              .dispatch;
    if (dispatch.implementation == "opencl.simt") return dispatch.refused.at(0).reason;
    EXPECT_EQ(dispatch.notes,
              std::vector<std::string>{"dz is rounded to f16, times a power of two"});
    return "";
  };
  EXPECT_EQ(refusal([](Call&) {}), "");
  EXPECT_EQ(refusal([](Call& call) { call.options.reduction = Reduction::sum; }), "");
  EXPECT_EQ(refusal([&](Call& call) { call.in.dloss = shape(DType::f32, {}); }), "");
  EXPECT_EQ(refusal([](Call& call) { call.execution.dz_dtype = DType::bf16; }), "");
  const std::string reason =
      "a product of the call has an operand that is not f16 or not to be rounded to it (dz of "
      "grad_bias, of dz_dtype f32, and of f16 where rows differ in more than their labels); "
      "opencl.simt serves";
  EXPECT_EQ(refusal([](Call& call) { call.grad_bias = true; }), reason);
  EXPECT_EQ(refusal([](Call& call) { call.execution.dz_dtype = DType::f32; }), reason);
  EXPECT_EQ(refusal([](Call& call) { call.options.reduction = Reduction::none; }), reason);
  EXPECT_EQ(refusal([&](Call& call) { call.in.weight = shape(DType::f32, {21}); }), reason);
  EXPECT_EQ(refusal([&](Call& call) { call.in.class_weight = shape(DType::f32, {67}); }), reason);
  EXPECT_EQ(refusal([&](Call& call) { call.in.dlse = shape(DType::f32, {21}); }), reason);
  EXPECT_EQ(refusal([&](Call& call) {
              call.in.labels = {};
              call.in.targets = shape(DType::f32, {21, 67});
            }),
            reason);
  namespace ld = linear_distillation;
  const auto taught = ld::plan(context_, Pass::value_and_grad,
                               {.x = shape(DType::f16, {21, 35}),
                                .w = shape(DType::f16, {35, 67}),
                                .teacher_x = shape(DType::f16, {21, 35}),
                                .teacher_w = shape(DType::f16, {35, 67}),
                                .labels = shape(DType::i32, {21})},
                               {}, {.grad_x = MutableView::host(nullptr, DType::f16, {21, 35})}, {},
                               {.implementation = {"opencl.mma", "opencl.simt"}});
  ASSERT_EQ(taught.dispatch.refused.size(), 1u);
  EXPECT_EQ(taught.dispatch.refused[0].reason, reason);
}

}  // namespace
}  // namespace tessera::test
