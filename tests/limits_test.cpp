// SPDX-License-Identifier: Apache-2.0
// Extents, strides, labels and numbers at the edge of what their types hold: a result as
// docs/maths.md has it, or an Error before anything is touched. The table is in docs/errors.md.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/expect_error.hpp"
#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr float poison = -77.0f;

/// A layer of a few numbers, and where its loss and gradients go.
struct Layer {
  std::vector<float> x, w;
  std::vector<std::int64_t> labels;
  std::int64_t h;
  std::vector<float> loss = std::vector<float>(labels.size(), poison);
  std::vector<float> lse = loss;
  std::vector<float> grad_x = std::vector<float>(x.size(), poison);
  std::vector<float> grad_w = std::vector<float>(w.size(), poison);

  std::int64_t b() const { return static_cast<std::int64_t>(labels.size()); }
  std::int64_t v() const { return static_cast<std::int64_t>(w.size()) / h; }
  lce::Inputs inputs() const {
    lce::Inputs in;
    in.x = View::host(x.data(), DType::f32, {b(), h});
    in.w = View::host(w.data(), DType::f32, {h, v()}, Dims{1, h});
    in.labels = View::host(labels.data(), Dims{b()});
    return in;
  }
  Outputs outputs() {
    Outputs out;
    out.loss = MutableView::host(loss.data(), DType::f32, {b()});
    out.lse = MutableView::host(lse.data(), DType::f32, {b()});
    return out;
  }
  lce::Gradients gradients() {
    lce::Gradients g;
    g.grad_x = MutableView::host(grad_x.data(), DType::f32, {b(), h});
    g.grad_w = MutableView::host(grad_w.data(), DType::f32, {h, v()}, Dims{1, h});
    return g;
  }
  void run(const std::string& implementation, const lce::Inputs& in) {
    LossOptions options;
    options.reduction = Reduction::none;
    lce::ExecutionOptions execution;
    execution.implementation = {implementation};
    lce::value_and_grad(shared_context(), in, outputs(), gradients(), options, execution).wait();
  }
  void run(const std::string& implementation) { run(implementation, inputs()); }
};

class Limits : public ImplementationTest {
 protected:
  /// What the call says; its outputs stay as they were.
  static std::string refused(Layer& layer, const lce::Inputs& in,
                             ErrorCode code = ErrorCode::invalid_argument) {
    try {
      layer.run(GetParam(), in);
    } catch (const Error& error) {
      for (const auto* values : {&layer.loss, &layer.lse, &layer.grad_x, &layer.grad_w}) {
        for (const float value : *values) EXPECT_EQ(value, poison) << error.what();
      }
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }
  static Layer small() {
    return {.x = {1, 2, 3, 4}, .w = {1, 0, 0, 1, 1, 1}, .labels = {0, 2}, .h = 2};
  }
};
class StreamedLimits : public Limits {};

TEST_P(Limits, ExtentsAndStridesBeyond64Bits) {
  Layer layer = small();
  for (const std::int64_t stride : {most, most / 2, -most, std::int64_t{1} << 61}) {
    lce::Inputs in = layer.inputs();
    in.x = View::host(layer.x.data(), DType::f32, {2, 2}, {stride, 1});
    EXPECT_NE(refused(layer, in).find("x"), std::string::npos);
  }
  for (const Dims& extents : {Dims{most, 2}, Dims{std::int64_t{1} << 32, std::int64_t{1} << 32}}) {
    lce::Inputs in = layer.inputs();
    in.w = View::host(layer.w.data(), DType::f32, extents, {0, 0});
    refused(layer, in);
    in = layer.inputs();
    in.x = View::host(layer.x.data(), DType::f32, extents, {0, 0});
    refused(layer, in);
  }
}

TEST_P(Limits, LabelsAtTheEdgesOf64Bits) {
  Layer layer = small();
  for (const std::int64_t label : {most, std::numeric_limits<std::int64_t>::min(),
                                   std::int64_t{1} << 32, std::int64_t{-1}, std::int64_t{3}}) {
    layer.labels[1] = label;
    const auto text = refused(layer, layer.inputs(), ErrorCode::label_out_of_range);
    EXPECT_NE(text.find(std::to_string(label)), std::string::npos);
  }
}

/// Columns that an i32 does not number: they overlap, and nothing is computed.
TEST_P(Limits, IndicesThatArgmaxDoesNotHold) {
  Layer layer = small();
  constexpr std::int64_t columns = (std::int64_t{1} << 31) + 1;
  lce::Inputs in = layer.inputs();
  in.w = View::host(layer.w.data(), DType::f32, {2, columns}, {1, 0});
  lce::ExecutionOptions execution;
  execution.implementation = {GetParam()};
  const auto refused = [](const char* part, const std::function<void()>& call) {
    expect_error(ErrorCode::invalid_argument, {part}, call);
  };
  std::vector<std::int32_t> argmax(2, 7);
  Outputs out;
  out.argmax = argmax;
  refused("argmax has type i32, which does not hold the index of every one of 2147483649 columns",
          [&] { lce::forward(shared_context(), in, out, {}, execution); });
  EXPECT_EQ(argmax, std::vector<std::int32_t>(2, 7));
  LossOptions shard;
  shard.vocab_size_total = 2 * columns;
  refused("a shard of 2147483649 columns is given; the most is 2^31",
          [&] { lce::forward_partial(shared_context(), in, shard, execution); });
}

TEST_P(Limits, ViewsThatOverlapByOneElement) {
  Layer layer = small();
  std::vector<float> memory(layer.w.size() + layer.x.size() - 1, poison);
  std::copy(layer.w.begin(), layer.w.end(), memory.begin());
  lce::Inputs in = layer.inputs();
  in.w = View::host(memory.data(), DType::f32, {2, 3}, {1, 2});
  auto gradients = layer.gradients();
  // Its first element is w's last.
  gradients.grad_x = MutableView::host(memory.data() + layer.w.size() - 1, DType::f32, {2, 2});
  lce::ExecutionOptions execution;
  execution.implementation = {GetParam()};
  const auto before = memory;
  expect_error(ErrorCode::invalid_argument, {"grad_x"}, [&] {
    lce::value_and_grad(shared_context(), in, {}, gradients, {}, execution).wait();
  });
  EXPECT_EQ(memory, before);
}

TEST_P(Limits, AWorkspaceOfEverything) {
  Layer layer = small();
  lce::ExecutionOptions execution;
  execution.implementation = {GetParam()};
  execution.workspace_bytes = std::numeric_limits<std::size_t>::max();
  lce::value_and_grad(shared_context(), layer.inputs(), {}, layer.gradients(), {}, execution)
      .wait();
  for (const float value : layer.grad_w) EXPECT_NE(value, poison);
}

/// exp is of differences, so that no logit is too large; the loss is one of them.
TEST_P(Limits, LogitsOf1e38) {
  Layer layer{.x = {1e19f, 1e19f}, .w = {1e19f, -1e19f}, .labels = {0, 1}, .h = 1};
  layer.run(GetParam());
  EXPECT_EQ(layer.loss[0], 0.0f);
  EXPECT_NEAR(layer.loss[1] / 2e38f, 1.0f, 1e-6f);
  EXPECT_NEAR(layer.lse[0] / 1e38f, 1.0f, 1e-6f);
  EXPECT_EQ(layer.grad_x[0], 0.0f);
  // p - [v = y] is 1 and -1, along w.
  EXPECT_NEAR(layer.grad_x[1] / 2e19f, 1.0f, 1e-6f);
  EXPECT_NEAR(layer.grad_w[0] / 1e19f, 1.0f, 1e-6f);
  EXPECT_NEAR(layer.grad_w[1] / -1e19f, 1.0f, 1e-6f);
}

/// A forward that added products up in another order has a maximum that is off by their rounding.
/// No probability is above 1 for it.
TEST_P(Limits, AMaximumBelowALogit) {
  for (const float logit : {1e4f, 1e9f, 1e28f, 1e38f}) {
    SCOPED_TRACE(logit);
    Layer layer{.x = {logit}, .w = {1.0f, -1.0f}, .labels = {1}, .h = 1};
    const float statistics[] = {logit * (1.0f - 0x1p-20f), 1.0f};
    lce::Inputs in = layer.inputs();
    in.statistics = View::host(statistics, {1, 2});
    lce::ExecutionOptions execution;
    execution.implementation = {GetParam()};
    lce::backward(shared_context(), in, layer.gradients(), {}, execution).wait();
    // p is (1, 0), so that dz is (1, -1).
    EXPECT_EQ(layer.grad_x[0], 2.0f);
    EXPECT_EQ(layer.grad_w[0], logit);
    EXPECT_EQ(layer.grad_w[1], -logit);

    // The same of logits that exist, so many that a row is streamed.
    std::vector<float> logits(4096, -logit), dlogits(logits.size(), poison);
    logits[0] = logit;
    const Dims row{1, static_cast<std::int64_t>(logits.size())};
    const std::int32_t label = 1;
    softmax_cross_entropy::Gradients gradient;
    gradient.grad_logits = MutableView::host(dlogits.data(), row);
    softmax_cross_entropy::backward(shared_context(),
                                    {.logits = View::host(logits.data(), row),
                                     .labels = View::host(&label, {1}),
                                     .statistics = View::host(statistics, {1, 2})},
                                    gradient, {}, {.implementation = GetParam()})
        .wait();
    EXPECT_EQ(dlogits[0], 1.0f);
    EXPECT_EQ(dlogits[1], -1.0f);
    EXPECT_EQ(dlogits[2], 0.0f);

    // And of a divergence from a teacher that is sure of the other word: dz is q - p.
    const float saved[] = {statistics[0], 1.0f, statistics[0], 1.0f, 0.0f};
    const float theirs[] = {-logit, logit};
    linear_distillation::Gradients gradients;
    gradients.grad_x = MutableView::host(layer.grad_x.data(), {1, 1});
    layer.grad_x[0] = poison;
    linear_distillation::backward(shared_context(),
                                  {.x = in.x,
                                   .w = in.w,
                                   .teacher_logits = View::host(theirs, {1, 2}),
                                   .statistics = in.statistics,
                                   .divergence_statistics = View::host(saved, {1, 5})},
                                  gradients, {.alpha = 1.0f}, {.implementation = GetParam()})
        .wait();
    EXPECT_EQ(layer.grad_x[0], 2.0f);
  }
}

/// Devices may take denormals for 0, which changes logits and gradients by less than that.
TEST_P(Limits, DenormalsEverywhere) {
  constexpr float tiny_value = 1e-40f;
  Layer layer{.x = std::vector<float>(6, tiny_value),
              .w = std::vector<float>(12, -tiny_value),
              .labels = {0, 3},
              .h = 3};
  layer.run(GetParam());
  for (const float loss : layer.loss) EXPECT_NEAR(loss, std::log(4.0f), 1e-6f);
  for (const float lse : layer.lse) EXPECT_NEAR(lse, std::log(4.0f), 1e-6f);
  for (const auto* gradient : {&layer.grad_x, &layer.grad_w}) {
    for (const float value : *gradient) EXPECT_LE(std::abs(value), 4 * tiny_value);
  }
}

/// Sums of 2^24 terms: a running f32 sum of ones stops there, at 2^24. Sums of lanes and blocks are
/// shorter, and the bound of a sum in any order is n u = 1.
TEST_P(StreamedLimits, AHiddenSizeOf2To24) {
  if (tiny()) GTEST_SKIP() << "takes minutes";
  // Tiles of opencl.simt multiply for half a minute; half of H still has a launch of more groups
  // than its second axis may have.
  const std::int64_t h =
      GetParam() == "opencl.simt" ? (std::int64_t{1} << 23) + 1027 : (std::int64_t{1} << 24) + 3;
  const auto count = static_cast<std::size_t>(h);
  Layer layer{.x = std::vector<float>(count, 1.0f),
              .w = std::vector<float>(2 * count, 0x1p-24f),
              .labels = {1},
              .h = h};
  // The second word's logit is 2^-24 (h - 1000), the first's 2^-24 h.
  std::fill_n(layer.w.begin() + h, 1000, 0.0f);
  try {
    layer.run(GetParam());
  } catch (const Error& error) {
    // A device whose largest allocation is smaller than a gradient's sums.
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    EXPECT_NE(std::string(error.what()).find("maximum allocation"), std::string::npos)
        << error.what();
    EXPECT_EQ(layer.loss[0], poison);
    return;
  }
  const double first = 0x1p-24 * static_cast<double>(h);
  EXPECT_NEAR(layer.lse[0], first + std::log1p(std::exp(-1000 * 0x1p-24)), 1e-4);
  EXPECT_NEAR(layer.loss[0], std::log(2.0), 1e-4);
  EXPECT_NEAR(layer.grad_w[0], 0.5f, 1e-4f);
  EXPECT_NEAR(layer.grad_w[2 * count - 1], -0.5f, 1e-4f);
  EXPECT_NEAR(layer.grad_x[0], 0.5 * 0x1p-24, 1e-4 * 0x1p-24);
}

INSTANTIATE_TEST_SUITE_P(All, Limits,
                         testing::ValuesIn(implementations_of<lce::Operator>(takes_any_shape)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Limits);
INSTANTIATE_TEST_SUITE_P(All, StreamedLimits,
                         testing::ValuesIn(implementations_of<lce::Operator>(streams)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StreamedLimits);

}  // namespace
}  // namespace tessera::test
