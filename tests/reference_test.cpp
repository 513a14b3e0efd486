// SPDX-License-Identifier: Apache-2.0
// The `reference` implementations behind the API: views in, views out. Their maths is the oracle's,
// which has tests of its own.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>

#include "host/arguments/offsets.hpp"
#include "host/linear_cross_entropy/request.hpp"
#include "host/loss/results.hpp"
#include "host/softmax_cross_entropy/request.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/golden.hpp"

namespace tessera {
namespace {

namespace lce = linear_cross_entropy;
namespace sce = softmax_cross_entropy;

// One rounding of a double result to f32 is 2^-24 relative; f32 inputs are exact.
constexpr double f32_rounding = 0x1p-24;

Context& host() {
  static Context context(ContextOptions{.host_only = true});
  return context;
}

std::vector<float> to_f32(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

void expect_close(const std::vector<float>& actual, const std::vector<double>& expected,
                  const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    // The oracle's own 1e-12 beside the rounding.
    EXPECT_NEAR(actual[i], expected[i], std::abs(expected[i]) * f32_rounding + 1e-12)
        << what << "[" << i << "]";
  }
}

/// The loss half of a call over vectors it owns.
template <class Inputs>
struct LossArrays {
  std::vector<std::int64_t> labels, target_indices;
  std::vector<float> weight, class_weight, dloss, dlse, target_probs, targets;
  std::vector<float> loss, lse, label_logprob, entropy, z_loss, statistics;
  std::vector<std::int32_t> argmax;
  Outputs outputs;

  LossArrays(const oracle::Problem& p, Inputs& in)
      : labels(p.labels),
        weight(to_f32(p.weight)),
        class_weight(to_f32(p.class_weight)),
        dloss(to_f32(p.dloss)),
        dlse(to_f32(p.dlse)) {
    set_targets(p, in);
    if (!weight.empty()) in.weight = weight;
    if (!class_weight.empty()) in.class_weight = class_weight;
    const bool none = p.options.reduction == Reduction::none;
    const Dims loss_shape = none ? Dims{p.b} : Dims{};
    if (!dloss.empty()) in.dloss = View::host(dloss.data(), loss_shape);
    if (!dlse.empty()) in.dlse = dlse;
    const auto b = static_cast<std::size_t>(p.b);
    loss.resize(none ? b : 1);
    for (auto* output : {&lse, &label_logprob, &entropy, &z_loss}) output->resize(b);
    statistics.resize(2 * b);
    argmax.resize(b);
    outputs = {.loss = MutableView::host(loss.data(), loss_shape),
               .lse = lse,
               .argmax = argmax,
               .label_logprob = label_logprob,
               .entropy = entropy,
               .z_loss = z_loss,
               .statistics = MutableView::host(statistics.data(), {p.b, 2})};
  }

  void set_targets(const oracle::Problem& p, Inputs& in) {
    target_indices = p.target_indices;
    target_probs = to_f32(p.target_probs);
    targets = to_f32(p.targets);
    if (p.k > 0) {
      in.target_indices = View::host(target_indices.data(), {p.b, p.k});
      in.target_probs = View::host(target_probs.data(), {p.b, p.k});
    } else if (!targets.empty()) {
      in.targets = View::host(targets.data(), {p.b, p.v_total()});
    } else {
      in.labels = labels;
    }
  }

  void expect(const std::map<std::string, std::vector<double>>& golden) const {
    expect_close(loss, golden.at("loss"), "loss");
    expect_close(lse, golden.at("lse"), "lse");
    expect_close(label_logprob, golden.at("label_logprob"), "label_logprob");
    expect_close(entropy, golden.at("entropy"), "entropy");
    expect_close(z_loss, golden.at("z_loss"), "z_loss");
    EXPECT_EQ(std::vector<double>(argmax.begin(), argmax.end()), golden.at("argmax"));
  }
};

class ReferenceGoldens : public testing::TestWithParam<std::string> {};

TEST_P(ReferenceGoldens, value_and_grad_agrees_with_pytorch) {
  const auto golden = test::read_golden(GetParam());
  const auto& p = golden.problem;
  if (p.from_logits()) {
    sce::Inputs in;
    LossArrays arrays(p, in);
    std::vector<float> logits = to_f32(p.logits);
    // In place.
    in.logits = View::host(logits.data(), {p.b, p.v});
    auto call = sce::value_and_grad(host(), in, arrays.outputs,
                                    {.grad_logits = MutableView::host(logits.data(), {p.b, p.v})},
                                    p.options, {.implementation = "reference"});
    EXPECT_EQ(call.dispatch().schedule, "textbook");
    arrays.expect(golden.expected);
    expect_close(logits, golden.expected.at("grad_logits"), "grad_logits");
    return;
  }
  lce::Inputs in;
  lce::Gradients gradients;
  LossArrays arrays(p, in);
  const std::vector<float> x = to_f32(p.x), w = to_f32(p.w), bias = to_f32(p.bias);
  std::vector<float> grad_x(x.size()), grad_w(w.size()), grad_bias(bias.size());
  in.x = View::host(x.data(), {p.b, p.h});
  in.w = View::host(w.data(), {p.h, p.v});
  gradients.grad_x = MutableView::host(grad_x.data(), {p.b, p.h});
  gradients.grad_w = MutableView::host(grad_w.data(), {p.h, p.v});
  if (!bias.empty()) {
    in.bias = bias;
    gradients.grad_bias = grad_bias;
  }
  const lce::ExecutionOptions textbook{.implementation = "reference"};
  const auto call = lce::value_and_grad(host(), in, arrays.outputs, gradients, p.options, textbook);
  const Dispatch& dispatch = call.dispatch();
  EXPECT_EQ(dispatch.implementation, "reference");
  EXPECT_EQ(dispatch.device, "host");
  EXPECT_EQ(dispatch.block_source, BlockSource::fallback);
  arrays.expect(golden.expected);
  expect_close(grad_x, golden.expected.at("grad_x"), "grad_x");
  expect_close(grad_w, golden.expected.at("grad_w"), "grad_w");
  if (!bias.empty()) expect_close(grad_bias, golden.expected.at("grad_bias"), "grad_bias");

  // backward from the statistics of that call, and from its lse.
  for (bool from_lse : {false, true}) {
    std::vector<float> again(w.size());
    lce::Inputs saved = in;
    if (from_lse) {
      saved.lse = arrays.lse;
    } else {
      saved.statistics = View::host(arrays.statistics.data(), {p.b, 2});
    }
    lce::backward(host(), saved, {.grad_w = MutableView::host(again.data(), {p.h, p.v})}, p.options,
                  textbook)
        .wait();
    // p is off by the rounding of sum alone, or by |lse| 2^-24, and dw sums over x; the z-term
    // carries lse^2 beside it.
    double largest_lse = 1.0, largest_x = 0.0;
    for (float value : arrays.lse) largest_lse = std::max<double>(largest_lse, std::abs(value));
    for (float value : x) largest_x = std::max<double>(largest_x, std::abs(value));
    double cotangent = 1.0;
    for (float value : arrays.dloss) cotangent = std::max<double>(cotangent, std::abs(value));
    for (float value : arrays.dlse) cotangent = std::max<double>(cotangent, std::abs(value));
    const double z_term = 2 * p.options.logsumexp_weight * largest_lse;
    const double tolerance = 8 * f32_rounding * (from_lse ? largest_lse : 1.0) * cotangent *
                             (1 + z_term) * largest_x * static_cast<double>(p.b);
    for (std::size_t i = 0; i < w.size(); ++i) {
      EXPECT_NEAR(again[i], grad_w[i], tolerance) << (from_lse ? "from lse " : "statistics ") << i;
    }
  }
}

/// Those with a teacher are linear_distillation_test's.
std::vector<std::string> goldens_without_a_teacher() {
  auto folders = test::golden_folders(TESSERA_GOLDENS);
  std::erase_if(folders,
                [](const auto& folder) { return folder.find("/distill_") != std::string::npos; });
  return folders;
}

INSTANTIATE_TEST_SUITE_P(Cases, ReferenceGoldens, testing::ValuesIn(goldens_without_a_teacher()),
                         [](const auto& param_info) {
                           return param_info.param.substr(param_info.param.rfind('/') + 1);
                         });

/// x[2, 4, 3][:, :-1], labels[2, 4][:, 1:] (i32), a PyTorch weight [V, H] in bf16, stride-0 dlse.
TEST(Reference, takes_views_of_any_strides_and_types) {
  constexpr std::int64_t v = 5, h = 3;
  std::vector<f16> x(24);
  std::vector<bf16> w(static_cast<std::size_t>(v * h));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = f16(0.25f * static_cast<float>(i % 7) - 0.5f);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = bf16(0.5f * static_cast<float>(i % 5) - 1.0f);
  const std::vector<std::int32_t> labels = {9, 0, 1, 2, 9, 3, -100, 4};
  const float dlse = 0.5f;

  oracle::Problem p;
  p.b = 6;
  p.h = h;
  p.v = v;
  for (std::int64_t row : {0, 1, 2, 4, 5, 6}) {
    for (std::int64_t k = 0; k < h; ++k) {
      p.x.push_back(static_cast<float>(x[static_cast<std::size_t>(row * h + k)]));
    }
    p.labels.push_back(labels[static_cast<std::size_t>(row + 1)]);
  }
  for (std::int64_t k = 0; k < h; ++k) {
    for (std::int64_t j = 0; j < v; ++j) {
      p.w.push_back(static_cast<float>(w[static_cast<std::size_t>(j * h + k)]));
    }
  }
  p.dlse.assign(6, dlse);
  const auto expected = oracle::backward(p);
  const auto expected_values = oracle::forward(p);

  const lce::Inputs in{.x = View::host(x.data(), {2, 3, h}, {4 * h, h, 1}),
                       .labels = View::host(labels.data() + 1, {2, 3}, {4, 1}),
                       .w = View::host(w.data(), {h, v}, {1, h}),
                       .dlse = View::host(&dlse, {2, 3}, {0, 0})};
  // grad_x in the layout of x, in bf16, added to 1; lse strided as the labels are.
  std::vector<bf16> grad_x(24, bf16(1.0f));
  std::vector<float> grad_w(static_cast<std::size_t>(v * h), 2.0f);
  std::vector<float> lse(8, -7.0f);
  lce::value_and_grad(host(), in, {.lse = MutableView::host(lse.data() + 1, {2, 3}, {4, 1})},
                      {.grad_x = MutableView::host(grad_x.data(), {2, 3, h}, {4 * h, h, 1}),
                       .grad_w = MutableView::host(grad_w.data(), {h, v}, {1, h}),
                       .accumulate = true},
                      LossOptions{}, {.implementation = "reference"})
      .wait();

  std::size_t row = 0;
  for (std::size_t i : {0u, 1u, 2u, 4u, 5u, 6u}) {
    EXPECT_EQ(lse[i + 1], static_cast<float>(expected_values.lse[row]));
    for (std::size_t k = 0; k < 3; ++k) {
      const bf16 sum(1.0f + static_cast<float>(expected.grad_x[row * 3 + k]));
      EXPECT_EQ(grad_x[i * 3 + k].bits, sum.bits);
    }
    ++row;
  }
  for (std::size_t i : {0u, 4u}) EXPECT_EQ(lse[i], -7.0f);  // between the rows
  for (std::size_t i : {3u, 7u}) {
    for (std::size_t k = 0; k < 3; ++k) EXPECT_EQ(static_cast<float>(grad_x[i * 3 + k]), 1.0f);
  }
  for (std::size_t k = 0; k < 3; ++k) {
    for (std::size_t j = 0; j < 5; ++j) {
      EXPECT_EQ(grad_w[j * 3 + k], 2.0f + static_cast<float>(expected.grad_w[k * 5 + j]));
    }
  }
}

TEST(Reference, partial_rows_are_relative_to_the_rounded_maximum) {
  // 1e4 + 1/3 is 3e-4 away from an f32, which would be an error of 3e-4 in the sum.
  const std::vector<float> logits = {30001.0f, 30000.0f, 29999.0f, -5.0f};
  const std::vector<float> c = {1, 1, 1, 0.5f, 2, 0, 1, 1};
  const std::vector<std::int64_t> labels = {5};
  const auto rows =
      sce::forward_partial(
          host(),
          {.logits = View::host(logits.data(), {1, 4}), .labels = labels, .class_weight = c},
          {.logit_scale = 1.0f / 3.0f, .vocab_offset = 4, .vocab_size_total = 8},
          {.implementation = "reference"})
          .rows;

  const double scale = 1.0f / 3.0f;
  double sum = 0, class_logit = 0, exp_logit = 0;
  for (std::size_t j = 0; j < 4; ++j) {
    const double shifted = scale * logits[j] - static_cast<double>(rows[0].max);
    sum += std::exp(shifted);
    class_logit += c[4 + j] * shifted;
    exp_logit += std::exp(shifted) * shifted;
  }
  EXPECT_EQ(rows[0].max, static_cast<float>(scale * 30001.0));
  EXPECT_EQ(rows[0].argmax, 4) << "of the whole's columns";
  EXPECT_EQ(rows[0].argmax_value, rows[0].max);
  EXPECT_EQ(rows[0].label_logit, static_cast<float>(scale * 30000.0));
  EXPECT_EQ(rows[0].class_sum, 4.0f);
  EXPECT_NEAR(rows[0].sum, sum, sum * 2 * f32_rounding);
  EXPECT_NEAR(rows[0].class_logit, class_logit, -class_logit * 2 * f32_rounding);
  EXPECT_NEAR(rows[0].exp_logit, exp_logit, -exp_logit * 2 * f32_rounding);
}

/// A question about a call of these extents.
struct Asked {
  lce::Inputs in;
  explicit Asked(std::int64_t b, std::int64_t h, std::int64_t v) {
    const auto shape = [](DType type, const Dims& extents) {
      return View::host(nullptr, type, extents);
    };
    in = {.x = shape(DType::f32, {b, h}),
          .labels = shape(DType::i32, {b}),
          .w = shape(DType::f32, {h, v})};
  }
  std::string why_not(Pass pass, const LossOptions& options = {}) {
    if (pass == Pass::backward)
      in.statistics = View::host(nullptr, DType::f32, {in.x.extents()[0], 2});
    return lce::why_unsupported(host(), "reference", pass, in, {}, {}, options).value_or("");
  }
};

TEST(Reference, refuses_what_does_not_fit) {
  const auto expect_has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect_has(Asked(8193, 4, 8192).why_not(Pass::forward), "2^26");
  EXPECT_EQ(Asked(8192, 4, 8192).why_not(Pass::forward), "");
  expect_has(Asked(8192, 131073, 8192).why_not(Pass::forward), "2^30");
  const LossOptions shard{.vocab_size_total = 8192};
  expect_has(Asked(8192, 4, 4096).why_not(Pass::value_and_grad, shard), "shard");
  EXPECT_EQ(Asked(8192, 4, 4096).why_not(Pass::backward, shard), "");
  for (const auto& info : lce::implementations()) {
    EXPECT_EQ(info.by_default, info.name != "reference" && info.name != "tpu_tile");
  }
}

TEST(Reference, a_workspace_that_is_too_small_is_an_error_with_the_minimum) {
  const Asked asked(10, 4, 100);
  lce::ExecutionOptions execution{.implementation = "reference"};
  const auto ask = [&] {
    return lce::plan(host(), Pass::forward, asked.in, {}, {}, {}, execution);
  };
  const auto plan = ask();
  EXPECT_GE(plan.minimum_workspace_bytes, 10 * 100 * 8);
  execution.workspace_bytes = static_cast<std::size_t>(plan.minimum_workspace_bytes);
  EXPECT_NO_THROW(ask());
  execution.workspace_bytes = *execution.workspace_bytes - 1;
  test::expect_error(ErrorCode::workspace_too_small, {std::to_string(plan.minimum_workspace_bytes)},
                     ask);
}

}  // namespace
}  // namespace tessera
