// SPDX-License-Identifier: Apache-2.0
// What rms_norm refuses; what it shares with other operators, misuse_test has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/rms_norm.hpp"
#include "tests/support/expect_error.hpp"

namespace tessera::test {
namespace {

struct Refused {
  const char* name;
  std::function<void(rms_norm::Inputs&, rms_norm::Outputs&, rms_norm::Gradients&,
                     rms_norm::Options&)>
      breaks;
  Pass pass;
  std::vector<std::string> says;
};

TEST(RmsNormMisuse, EachMistakeIsOneErrorThatNamesIt) {
  Context context(ContextOptions{.host_only = true});
  std::vector<float> x(12, 1.0f), scale(6, 1.0f), dy(12, 1.0f);
  const auto whole = [](std::vector<float>& array) {
    return MutableView::host(array.data(), {2, 6});
  };
  using In = rms_norm::Inputs;
  using Out = rms_norm::Outputs;
  using Grad = rms_norm::Gradients;
  using Opt = rms_norm::Options;
  const Refused all[] = {
      {"negative epsilon",
       [](In&, Out&, Grad&, Opt& o) { o.epsilon = -1.0f; },
       Pass::forward,
       {"epsilon is -1", "the least is 0"}},
      {"NaN epsilon",
       [](In&, Out&, Grad&, Opt& o) { o.epsilon = std::nanf(""); },
       Pass::forward,
       {"epsilon", "finite"}},
      {"an offset without a scale",
       [](In& in, Out&, Grad&, Opt& o) {
         in.scale = {};
         o.offset = 1.0f;
       },
       Pass::forward,
       {"offset is 1", "no scale is given"}},
      {"H of 0",
       [&](In& in, Out&, Grad&, Opt&) {
         in = {.x = View::host(x.data(), {2, 0})};
       },
       Pass::forward,
       {"x has shape [2, 0]", "at least one"}},
      {"scale of another length",
       [&](In& in, Out&, Grad&, Opt&) { in.scale = View::host(scale.data(), {5}); },
       Pass::forward,
       {"scale has shape [5], expected [6]", "H is the last axis of x"}},
      {"dy in forward",
       [&](In& in, Out&, Grad&, Opt&) { in.dy = whole(dy); },
       Pass::forward,
       {"dy is given", "does not read it"}},
      {"no dy in backward",
       [](In& in, Out&, Grad&, Opt&) { in.dy = {}; },
       Pass::backward,
       {"dy is not given", "[..., H]"}},
      {"other rows of dy",
       [&](In& in, Out&, Grad&, Opt&) {
         in.dy = View::host(dy.data(), {1, 6});
       },
       Pass::backward,
       {"dy has shape [1, 6], expected [2, 6]"}},
      {"a gradient of no scale",
       [](In& in, Out&, Grad&, Opt&) { in.scale = {}; },
       Pass::backward,
       {"grad_scale is asked for but no scale is given"}},
      {"y that half overlaps x",
       [&](In& in, Out& out, Grad&, Opt&) {
         in.x = View::host(x.data(), {1, 6});
         out.y = MutableView::host(x.data() + 3, {1, 6});
       },
       Pass::forward,
       {"y overlaps the input x", "the very same view"}},
      {"accumulate over x",
       [&](In&, Out&, Grad& grad, Opt&) {
         grad.grad_x = whole(x);
         grad.accumulate = true;
       },
       Pass::backward,
       {"accumulate is set and grad_x is the view x"}},
      {"no output",
       [](In&, Out& out, Grad&, Opt&) { out = {}; },
       Pass::forward,
       {"no output is asked for"}},
      {"no gradient",
       [](In&, Out&, Grad& grad, Opt&) { grad = {}; },
       Pass::backward,
       {"no gradient is asked for", "grad_x, grad_scale"}},
      {"integers",
       [&](In& in, Out&, Grad&, Opt&) { in.scale = View::host(scale.data(), DType::i32, {6}); },
       Pass::forward,
       {"scale has type i32", "f32, bf16 or f16"}},
  };
  for (const auto& c : all) {
    SCOPED_TRACE(c.name);
    std::vector<float> y(12, -7.0f), grad_x(12, -7.0f), grad_scale(6, -7.0f);
    In in{.x = whole(x), .scale = scale};
    Out out;
    Grad grad;
    Opt options;
    if (c.pass == Pass::forward) {
      out.y = whole(y);
    } else {
      in.dy = whole(dy);
      grad = {.grad_x = whole(grad_x), .grad_scale = grad_scale};
    }
    c.breaks(in, out, grad, options);
    expect_error(ErrorCode::invalid_argument, c.says, [&] {
      if (c.pass == Pass::forward) {
        rms_norm::forward(context, in, out, options);
      } else {
        rms_norm::backward(context, in, grad, options);
      }
    });
    for (const auto* array : {&y, &grad_x, &grad_scale}) {
      EXPECT_EQ(std::count(array->begin(), array->end(), -7.0f),
                static_cast<std::ptrdiff_t>(array->size()));
    }
  }
}

TEST(RmsNormMisuse, APassThatItDoesNotHave) {
  Context context(ContextOptions{.host_only = true});
  const rms_norm::Inputs in{.x = View::host(nullptr, DType::f32, {2, 6})};
  for (const Pass pass : {Pass::value_and_grad, Pass::forward_partial}) {
    const auto why = rms_norm::why_unsupported(context, "eigen", pass, in, {}, {});
    ASSERT_TRUE(why);
    EXPECT_NE(why->find("has no such pass; it has forward, backward"), std::string::npos) << *why;
  }
}

/// A block that a TPU refuses, or has no room for.
TEST(RmsNormMisuse, BlocksOfTheTileMachine) {
  struct BlockOfRows {
    std::int64_t b, h;
    std::optional<std::int64_t> block;
    std::vector<std::string> says;
  };
  const BlockOfRows all[] = {
      {23, 33, 5, {"b_block_size", "R2", "5, must be a multiple of 8 or the array's 23"}},
      {1024, 4096, 1024, {"b_block_size is 1024", "R13", "the scoped limit is 16777216"}},
      {8, 300000, {}, {"H = 300000 is too long", "8 of them do not fit", "use eigen", "R13"}},
      // Whatever the block, the row is what does not fit.
      {64, 300000, 32, {"H = 300000 is too long", "R13"}},
  };
  Context context({.device = "v4", .warning_handler = [](const std::string&) {}});
  for (const auto& c : all) {
    std::vector<float> x(static_cast<std::size_t>(c.b * c.h), 1.0f);
    std::vector<float> y(x.size(), -7.0f);
    rms_norm::ExecutionOptions execution;
    execution.implementation = "tpu_tile";
    if (c.block) execution.block_sizes = rms_norm::BlockSizes{*c.block};
    expect_error(ErrorCode::unsupported, c.says, [&] {
      rms_norm::forward(context, {.x = View::host(x.data(), {c.b, c.h})},
                        {.y = MutableView::host(y.data(), {c.b, c.h})}, {}, execution);
    });
    EXPECT_EQ(std::count(y.begin(), y.end(), -7.0f), static_cast<std::ptrdiff_t>(y.size()));
  }
}

}  // namespace
}  // namespace tessera::test
