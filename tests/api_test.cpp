// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <type_traits>

#include "host/linear_cross_entropy/request.hpp"
#include "tessera/tessera.hpp"

/// The two forms of every call, the shapes and layouts of owned results, and the questions.
namespace tessera {
namespace {

namespace lce = linear_cross_entropy;
namespace sce = softmax_cross_entropy;

constexpr std::int64_t H = 3;
constexpr std::int64_t V = 5;

/// Every implementation that is compiled in and needs no device.
std::vector<std::string> host_implementations() {
  std::vector<std::string> names;
  for (const auto& info : lce::implementations()) {
    // tpu_tile takes whole blocks of rows and columns alone; tile_loss_test is its own.
    if (info.name == "tpu_tile") continue;
    if (!info.name.starts_with("opencl")) names.push_back(info.name);
  }
  return names;
}

class Api : public testing::TestWithParam<std::string> {
 protected:
  Api() {
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = std::sin(static_cast<float>(i));
    for (std::size_t i = 0; i < w_.size(); ++i) w_[i] = std::cos(static_cast<float>(3 * i));
  }
  lce::Inputs inputs() const {
    return {.x = View::host(x_.data(), {2, 3, H}),
            .labels = View::host(labels_.data(), {2, 3}),
            .w = View::host(w_.data(), {H, V})};
  }
  lce::ExecutionOptions execution() const { return {.implementation = GetParam()}; }

  Context context_{ContextOptions{.host_only = true}};
  std::vector<float> x_ = std::vector<float>(6 * H);
  std::vector<float> w_ = std::vector<float>(H * V);
  std::vector<float> bias_ = std::vector<float>(V, 0.5f);
  std::vector<std::int32_t> labels_ = {0, 1, 4, -100, 2, 3};
};

INSTANTIATE_TEST_SUITE_P(All, Api, testing::ValuesIn(host_implementations()),
                         [](const auto& i) { return i.param; });

TEST_P(Api, OwnedResultsHaveTheCallersShapes) {
  LossOptions options{.reduction = Reduction::none};
  options.wants = {.lse = true, .argmax = true, .statistics = true};
  auto in = inputs();
  in.bias = bias_;
  const auto r = lce::value_and_grad(context_, in, options, execution());
  EXPECT_EQ(r.loss.extents(), (Dims{2, 3}));
  EXPECT_EQ(r.lse.extents(), (Dims{2, 3}));
  EXPECT_EQ(r.argmax.dtype(), DType::i32);
  EXPECT_EQ(r.statistics.extents(), (Dims{2, 3, 2}));
  EXPECT_FALSE(r.entropy);
  EXPECT_FALSE(r.z_loss);
  EXPECT_FALSE(r.label_logprob);
  EXPECT_EQ(r.grad_x.extents(), (Dims{2, 3, H}));
  EXPECT_EQ(r.grad_w.extents(), (Dims{H, V}));
  EXPECT_EQ(r.grad_bias.extents(), (Dims{V}));
  EXPECT_EQ(r.dispatch.implementation, GetParam());
  EXPECT_EQ(r.loss.as<float>()[3], 0.0f);
  EXPECT_EQ(r.argmax.as<std::int32_t>()[3], -1);
  // No bias, no gradient of it; the loss is a single number.
  const auto mean = lce::value_and_grad(context_, inputs(), {}, execution());
  EXPECT_FALSE(mean.grad_bias);
  EXPECT_EQ(mean.loss.extents(), Dims{});
  EXPECT_TRUE(std::isfinite(mean.loss.item()));
}

TEST_P(Api, OnlyWhatIsWantedComesBack) {
  LossOptions options;
  options.wants.grad_w = false;
  const auto r = lce::value_and_grad(context_, inputs(), options, execution());
  EXPECT_TRUE(r.grad_x);
  EXPECT_FALSE(r.grad_w);
  options.wants.grad_x = false;
  EXPECT_THROW(lce::value_and_grad(context_, inputs(), options, execution()), Error);
}

TEST_P(Api, GradWLiesInMemoryAsWDoes) {
  std::vector<float> transposed(w_.size());
  for (std::int64_t h = 0; h < H; ++h) {
    for (std::int64_t v = 0; v < V; ++v) {
      transposed[static_cast<std::size_t>(v * H + h)] = w_[static_cast<std::size_t>(h * V + v)];
    }
  }
  auto in = inputs();
  const auto hv = lce::value_and_grad(context_, in, {}, execution());
  in.w = View::host(transposed.data(), {H, V}, {1, H});
  const auto vh = lce::value_and_grad(context_, in, {}, execution());
  EXPECT_EQ(hv.grad_w.strides(), (Dims{V, 1}));
  EXPECT_EQ(vh.grad_w.strides(), (Dims{1, H}));
  EXPECT_EQ(vh.grad_w.extents(), (Dims{H, V}));
  for (std::int64_t h = 0; h < H; ++h) {
    for (std::int64_t v = 0; v < V; ++v) {
      EXPECT_NEAR(vh.grad_w.as<float>()[static_cast<std::size_t>(v * H + h)],
                  hv.grad_w.as<float>()[static_cast<std::size_t>(h * V + v)], 1e-6f);
    }
  }
}

TEST_P(Api, ASingleRowWithoutLeadingAxes) {
  const std::int64_t label = 3;
  const lce::Inputs one{.x = View::host(x_.data(), {H}),
                        .labels = View::host(&label, {}),
                        .w = View::host(w_.data(), {H, V})};
  LossOptions options{.reduction = Reduction::none};
  options.wants.statistics = true;
  const auto r = lce::value_and_grad(context_, one, options, execution());
  EXPECT_EQ(r.loss.extents(), Dims{});
  EXPECT_EQ(r.statistics.extents(), (Dims{2}));
  EXPECT_EQ(r.grad_x.extents(), (Dims{H}));
  // A span of one element is as good as a scalar view.
  std::vector<float> loss(1, -1.0f);
  lce::forward(context_, one, {.loss = loss}, {}, execution()).wait();
  EXPECT_FLOAT_EQ(loss[0], r.loss.item());
}

TEST_P(Api, NoRowsAtAll) {
  const lce::Inputs none{.x = View::host(x_.data(), {0, H}),
                         .labels = View::host(labels_.data(), {0}),
                         .w = View::host(w_.data(), {H, V})};
  const auto r = lce::value_and_grad(context_, none, {}, execution());
  EXPECT_EQ(r.loss.item(), 0.0f);
  EXPECT_EQ(r.grad_x.extents(), (Dims{0, H}));
  for (float g : r.grad_w.as<float>()) EXPECT_EQ(g, 0.0f);
  EXPECT_TRUE(lce::forward_partial(context_, none, {}, execution()).rows.empty());
}

TEST_P(Api, ViewsAndOwnedResultsAgree) {
  const auto owned = lce::value_and_grad(context_, inputs(), {}, execution());
  std::vector<float> loss(1), grad_x(6 * H), grad_w(H * V);
  auto completion = lce::value_and_grad(context_, inputs(), {.loss = loss},
                                        {.grad_x = MutableView::host(grad_x.data(), {2, 3, H}),
                                         .grad_w = MutableView::host(grad_w.data(), {H, V})},
                                        {}, execution());
  completion.wait();
  EXPECT_EQ(completion.dispatch().implementation, GetParam());
  EXPECT_EQ(loss[0], owned.loss.item());
  EXPECT_TRUE(std::equal(grad_x.begin(), grad_x.end(), owned.grad_x.as<float>().begin()));
  EXPECT_TRUE(std::equal(grad_w.begin(), grad_w.end(), owned.grad_w.as<float>().begin()));
}

/// Empty braces stand for options, of which there are defaults, and not for views, of which a call
/// without any would be wrong.
TEST_P(Api, EmptyBracesAreTheDefaults) {
  const auto same = [](const HostTensor& a, const HostTensor& b) {
    return a && a.extents() == b.extents() && std::ranges::equal(a.as<float>(), b.as<float>());
  };
  Context context({.host_only = true, .warning_handler = [](const std::string&) {}});
  const lce::Inputs in = inputs();
  const std::vector<float> lse(6, 1.5f);
  const lce::Result forward = lce::forward(context, in, {}, {});
  EXPECT_TRUE(same(forward.loss, lce::forward(context, in).loss));
  EXPECT_TRUE(same(forward.loss, lce::forward(context, in, {}).loss));
  EXPECT_TRUE(same(forward.loss, lce::forward(context, in, LossOptions{}, {}).loss));
  EXPECT_TRUE(same(lce::value_and_grad(context, in, {}, {}).grad_x,
                   lce::value_and_grad(context, in).grad_x));
  lce::Inputs saved = in;
  saved.lse = View::host(lse.data(), {2, 3});
  const lce::Result backward = lce::backward(context, saved, {}, {});
  EXPECT_TRUE(same(backward.grad_w, lce::backward(context, saved).grad_w));
  // Braces with anything in them mean what they name.
  std::vector<float> loss(1);
  lce::forward(context, in, {.loss = loss}, {}).wait();
  EXPECT_EQ(loss[0], forward.loss.item());
  const auto sum = lce::forward(context, in, {.reduction = Reduction::sum}, {});
  EXPECT_EQ(sum.dispatch.implementation, "eigen");
  EXPECT_NE(sum.loss.item(), forward.loss.item());
  const auto named = lce::forward(context, in, {}, {.implementation = GetParam()});
  EXPECT_EQ(named.dispatch.implementation, GetParam());

  sce::Inputs logits{.logits = View::host(w_.data(), {H, V}),
                     .labels = View::host(labels_.data(), {H})};
  const sce::Result soft = sce::forward(context, logits, {}, {});
  EXPECT_TRUE(same(soft.loss, sce::forward(context, logits).loss));
  EXPECT_TRUE(same(sce::value_and_grad(context, logits, {}, {}).grad_logits,
                   sce::value_and_grad(context, logits).grad_logits));
  logits.lse = View::host(lse.data(), {H});
  const sce::Result soft_backward = sce::backward(context, logits, {}, {});
  EXPECT_TRUE(same(soft_backward.grad_logits, sce::backward(context, logits).grad_logits));
}

/// What says which gradients are added to.
TEST(ApiAccumulate, IsABoolOrNamesGradients) {
  using lce::Accumulate;
  static_assert(lce::Gradients{}.accumulate == Accumulate::none);
  static_assert(lce::Gradients{.accumulate = true}.accumulate == Accumulate::all);
  static_assert(Accumulate(false) == Accumulate::none);
  static_assert((Accumulate::grad_x | Accumulate::grad_w | Accumulate::grad_bias) ==
                Accumulate::all);
  static_assert(!std::is_convertible_v<int, Accumulate>);
  static_assert(!std::is_convertible_v<float*, Accumulate>);
  static_assert(!std::is_convertible_v<Accumulate, bool>, "which of them is asked for by name");
  const Accumulate shared = Accumulate::grad_w | Accumulate::grad_bias;
  EXPECT_TRUE(shared.has(Accumulate::grad_w));
  EXPECT_TRUE(shared.has(Accumulate::grad_bias));
  EXPECT_FALSE(shared.has(Accumulate::grad_x));
  EXPECT_FALSE(shared.has(Accumulate::all));
  // A pass without gradients refuses it, whichever gradient is named.
  Context context(ContextOptions{.host_only = true});
  const std::vector<float> numbers(4);
  const std::vector<std::int32_t> labels(2);
  const auto why = lce::why_unsupported(context, "eigen", Pass::forward,
                                        {.x = View::host(numbers.data(), {2, 1}),
                                         .labels = labels,
                                         .w = View::host(numbers.data(), {1, 2})},
                                        {}, {.accumulate = Accumulate::grad_w});
  ASSERT_TRUE(why);
  EXPECT_NE(why->find("accumulate is set, but this pass computes no gradients"), std::string::npos);
}

TEST_P(Api, PlanAnswersInAdvance) {
  const auto plan = lce::plan(context_, Pass::value_and_grad, inputs(), {}, {}, {}, execution());
  EXPECT_EQ(plan.dispatch.implementation, GetParam());
  EXPECT_GE(plan.workspace_bytes, plan.minimum_workspace_bytes);
  EXPECT_FALSE(lce::why_unsupported(context_, GetParam(), Pass::forward_partial, inputs(), {}, {}));
}

TEST_P(Api, TheCallersBlocksArriveWhateverTheWay) {
  lce::ExecutionOptions given = execution();
  given.block_size = 64;
  const auto call = operators::bind<lce::Operator>(Pass::forward, inputs(), {}, {}, {}, given);
  const auto arrived =
      operators::with_checked(context_, call, operators::Form::owned, [](const auto& request) {
        return operators::blocks_as<lce::BlockSizes>(request.call.block_sizes);
      });
  EXPECT_EQ(arrived, (lce::BlockSizes{.v_block_size = 64}));
  const auto [blocks, source] =
      lce::infer_block_sizes(context_, GetParam(), Pass::forward, 6, H, V);
  EXPECT_GT(blocks.v_block_size, 0);
  EXPECT_NE(source, BlockSource::caller);
}

TEST(ApiQuestions, FlopsAreCreditedByThePassAndTheGradients) {
  Context context(ContextOptions{.host_only = true});
  const auto shape = [](DType type, const Dims& extents) {
    return View::host(nullptr, type, extents);
  };
  const std::int64_t b = 512, h = 2048, v = 32768, bhv = b * h * v;
  lce::Inputs in{.x = shape(DType::bf16, {b, h}),
                 .labels = shape(DType::i32, {b}),
                 .w = shape(DType::bf16, {h, v})};
  const auto cost = [&](Pass pass, LossOptions options = {}, lce::ExecutionOptions e = {}) {
    e.implementation = "reference";
    return lce::cost_estimate(context, pass, in, {}, {}, options, e);
  };
  const auto forward = cost(Pass::forward);
  EXPECT_EQ(forward.flops, 2 * bhv);
  EXPECT_EQ(forward.executed_flops, 2 * bhv);
  EXPECT_EQ(forward.transcendentals, b * v + b);
  EXPECT_EQ(forward.bytes_ideal, 2 * b * h + 2 * h * v + 4 * b + 4);
  EXPECT_GE(forward.bytes_moved, forward.bytes_ideal);
  EXPECT_EQ(cost(Pass::forward_partial).flops, 2 * bhv);
  EXPECT_EQ(cost(Pass::value_and_grad).flops, 6 * bhv);
  EXPECT_EQ(cost(Pass::forward, {.logit_soft_cap = 30.0f}).transcendentals, 2 * b * v + b);
  LossOptions frozen;
  frozen.wants.grad_w = false;
  EXPECT_EQ(cost(Pass::value_and_grad, frozen).flops, 4 * bhv);
  in.statistics = shape(DType::f32, {b, 2});
  EXPECT_EQ(cost(Pass::backward).flops, 6 * bhv);
  // Smaller blocks read the operands more often; stride 0 is read once.
  in.statistics = {};
  const auto few = cost(Pass::forward, {}, {.block_sizes = lce::BlockSizes{64, 512, 256}});
  EXPECT_EQ(few.bytes_moved,
            few.bytes_ideal + (b / 64 - 1) * 2 * h * v + (v / 256 - 1) * 2 * b * h);
  in.x = View::host(nullptr, DType::bf16, {b, h}, {0, 1});
  EXPECT_EQ(cost(Pass::forward).bytes_ideal, forward.bytes_ideal - 2 * (b - 1) * h);
}

TEST(ApiQuestions, ExecutedFlopsFollowTheScheduleThatThePlanNames) {
  const auto shape = [](DType type, const Dims& extents, const Dims& strides = {}) {
    return View::host(nullptr, type, extents, strides);
  };
  const std::int64_t b = 512, h = 2048, v = 32768, bhv = b * h * v;
  Context context;
  std::set<std::string> schedules;
  for (const auto& info : lce::implementations()) {
    // They need what they need; reference never repeats, tpu_tile always (tile_loss_test).
    if (info.name == "reference" || info.name == "tpu_tile") continue;
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const std::size_t mebibytes : {16, 64, 512}) {
        const lce::Inputs in{
            .x = shape(type, {b, h}), .labels = shape(DType::i32, {b}), .w = shape(type, {h, v})};
        const lce::ExecutionOptions e{.implementation = info.name,
                                      .workspace_bytes = mebibytes << 20};
        if (lce::why_unsupported(context, info.name, Pass::value_and_grad, in, {}, {}, {}, e)) {
          continue;
        }
        const auto schedule =
            lce::plan(context, Pass::value_and_grad, in, {}, {}, {}, e).dispatch.schedule;
        const auto cost = lce::cost_estimate(context, Pass::value_and_grad, in, {}, {}, {}, e);
        EXPECT_EQ(cost.flops, 6 * bhv);
        EXPECT_EQ(cost.executed_flops, (schedule == "v_outer" ? 8 : 6) * bhv)
            << info.name << " " << to_string(type) << " " << mebibytes << " MiB: " << schedule;
        schedules.insert(schedule);
      }
    }
  }
  EXPECT_TRUE(schedules.contains("v_outer"));
  EXPECT_GT(schedules.size(), 1u);
}

TEST(ApiSoftmax, InPlaceIsTheSameGradient) {
  Context context(ContextOptions{.host_only = true});
  std::vector<float> logits(4 * V);
  std::iota(logits.begin(), logits.end(), -7.0f);
  const std::vector<std::int32_t> labels = {0, 4, -100, 2};
  for (const auto& name : host_implementations()) {
    auto work = logits;
    const sce::Inputs in{.logits = View::host(work.data(), {4, V}), .labels = labels};
    const auto apart = sce::value_and_grad(context, in, {}, {.implementation = name});
    std::vector<float> loss(1);
    sce::value_and_grad(context, in, {.loss = loss},
                        {.grad_logits = MutableView::host(work.data(), {4, V})}, {},
                        {.implementation = name})
        .wait();
    EXPECT_EQ(loss[0], apart.loss.item());
    EXPECT_TRUE(std::equal(work.begin(), work.end(), apart.grad_logits.as<float>().begin()));
  }
}

TEST(ApiVersion, SaysWhatItIs) {
  EXPECT_STREQ(version(), "0.1.0");
  EXPECT_NE(std::string(revision()), "");
  EXPECT_NE(std::string(build_description()).find("OPENCL="), std::string::npos);
}

}  // namespace
}  // namespace tessera
