// SPDX-License-Identifier: Apache-2.0
// What linear_distillation alone refuses.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/distillation.hpp"
#include "tests/support/expect_error.hpp"

namespace tessera::distillation {
namespace {

struct Wrong {
  const char* name;
  std::function<void(ld::Inputs&, ld::Options&)> breaks;
  std::string says;
  ErrorCode code = ErrorCode::invalid_argument;
};

std::vector<Wrong> wrong_options() {
  return {
      {"temperature", [](auto&, auto& o) { o.temperature = 0.0f; },
       "temperature is 0; its range is 1e-06 to 1e+06; logits are divided by it"},
      {"negative temperature", [](auto&, auto& o) { o.temperature = -1.0f; }, "temperature is -1;"},
      {"NaN temperature", [](auto&, auto& o) { o.temperature = std::nanf(""); },
       "temperature is nan;"},
      {"infinite temperature", [](auto&, auto& o) { o.temperature = infinity; },
       "temperature is inf; its range"},
      {"cold temperature", [](auto&, auto& o) { o.temperature = 1e-9f; },
       "temperature is 1e-09; its range"},
      {"hot temperature", [](auto&, auto& o) { o.temperature = 1e7f; },
       "temperature is 10000000; its range"},
      {"alpha", [](auto&, auto& o) { o.alpha = 1.5f; }, "alpha is 1.5; its range is 0 to 1"},
      {"beta", [](auto&, auto& o) { o.beta = -0.1f; }, "beta is -0.1; its range is 0 to 1"},
      {"divergence", [](auto&, auto& o) { o.divergence = static_cast<Divergence>(7); },
       "divergence is 7; give forward_kl, reverse_kl or jsd"},
      {"scale", [](auto&, auto& o) { o.teacher_logit_scale = infinity; },
       "teacher_logit_scale is inf; give a finite number"},
      {"cap", [](auto&, auto& o) { o.teacher_logit_soft_cap = -2.0f; },
       "teacher_logit_soft_cap is -2; the least is 0, which turns it off"},
      {"a shard", [](auto&, auto& o) { o.loss.vocab_size_total = 20; }, "vocab_size_total is 20"},
  };
}

/// Of a student of x [6, 5] and w [5, 9]; `other` is memory for arrays.
std::vector<Wrong> wrong_arrays(const std::vector<float>& other) {
  return {
      {"no teacher", [](auto& in, auto&) { in.teacher_x = in.teacher_w = {}; },
       "no teacher is given; give teacher_x with teacher_w, or teacher_logits"},
      {"half a teacher", [](auto& in, auto&) { in.teacher_w = {}; },
       "teacher_w is not given; teacher_x has no meaning without it"},
      {"two teachers",
       [&](auto& in, auto&) {
         in.teacher_logits = View::host(other.data(), {6, 9});
       },
       "teacher_x is given; teacher_logits are given; give one or the other"},
      {"another vocabulary",
       [&](auto& in, auto&) {
         in.teacher_w = View::host(other.data(), {4, 10});
       },
       "teacher_w has shape [4, 10], expected [4, 9]"},
      {"other rows",
       [&](auto& in, auto&) {
         in.teacher_x = View::host(other.data(), {5, 4});
       },
       "teacher_x has shape [5, 4], expected [6, 4]: the leading axes of x [6, 5]; give both the "
       "same rows"},
      {"other rows of logits",
       [&](auto& in, auto&) {
         in.teacher_x = in.teacher_w = {};
         in.teacher_logits = View::host(other.data(), {5, 9});
       },
       "teacher_logits has shape [5, 9], expected [6, 9]: the leading axes of x [6, 5]; give both "
       "the same rows"},
      {"logits of another vocabulary",
       [&](auto& in, auto&) {
         in.teacher_x = in.teacher_w = {};
         in.teacher_logits = View::host(other.data(), {6, 8});
       },
       "teacher_logits has shape [6, 8], expected [6, 9]: [..., V], where V is the last axis of w"},
      {"no target", [](auto& in, auto&) { in.labels = {}; },
       "target_probs, or targets); alpha is 0.5, and only at 1 may a call do without: give one of "
       "them, or alpha 1"},
      {"no target, no share", [](auto& in, auto& o) { in.labels = {}, o.alpha = 0.0f; },
       "alpha is 0, and only at 1 may a call do without"},
  };
}

TEST(LinearDistillationMisuse, IsRefusedByName) {
  const std::vector<float> other(6 * 40 * 9);
  auto all = wrong_arrays(other);
  for (auto& each : wrong_options()) all.push_back(std::move(each));
  Problem p;
  p.b = 6;
  p.h = 5;
  p.v = 9;
  p.g = 4;
  p.has_bias = false;
  const Arrays arrays(p);
  Context context({.host_only = true});
  for (const auto& wrong : all) {
    SCOPED_TRACE(wrong.name);
    auto inputs = arrays.inputs(Pass::forward);
    ld::Options options;
    std::vector<float> loss = {-7.0f};
    wrong.breaks(inputs, options);
    ld::Outputs outputs;
    outputs.loss = MutableView::host(loss.data(), Dims());
    test::expect_error(wrong.code, {wrong.says},
                       [&] { forward(context, inputs, outputs, options).wait(); });
    EXPECT_EQ(loss[0], -7.0f);
  }
}

TEST(LinearDistillationMisuse, ShardsOfJsdAreUnsupported) {
  Problem p;
  const Arrays arrays(p);
  Context context({.host_only = true});
  ld::Options jsd{.divergence = Divergence::jsd};
  test::expect_error(ErrorCode::unsupported, {"two rounds of exchange"},
                     [&] { forward_partial(context, arrays.inputs(Pass::forward_partial), jsd); });
  jsd.loss.vocab_size_total = 2 * p.v;
  auto inputs = arrays.inputs(Pass::backward);
  const std::vector<float> lse(static_cast<std::size_t>(p.b), 1.0f);
  inputs.lse = lse;
  test::expect_error(ErrorCode::unsupported, {"two rounds of exchange"},
                     [&] { backward(context, inputs, jsd); });
  // At either end of beta it is a KL.
  for (const float beta : {0.0f, 1.0f}) {
    const ld::Options end{.divergence = Divergence::jsd, .beta = beta};
    const auto partial = forward_partial(context, arrays.inputs(Pass::forward_partial), end);
    EXPECT_EQ(partial.divergence, beta == 0.0f ? Divergence::forward_kl : Divergence::reverse_kl);
    EXPECT_EQ(partial.divergence_rows.size(), static_cast<std::size_t>(p.b));
  }
}

TEST(LinearDistillationMisuse, WhatWasSavedIsForBackward) {
  Problem p;
  const Arrays arrays(p);
  Context context({.host_only = true});
  const std::vector<float> saved(static_cast<std::size_t>(5 * p.b), 1.0f);
  auto inputs = arrays.inputs(Pass::forward);
  inputs.divergence_statistics = View::host(saved.data(), {p.b, 5});
  test::expect_error(ErrorCode::invalid_argument, {"read by backward alone"},
                     [&] { forward(context, inputs, p.options); });
  inputs = arrays.inputs(Pass::backward);
  inputs.lse = View::host(saved.data(), {p.b});
  inputs.divergence_statistics = View::host(saved.data(), {p.b, 4});
  test::expect_error(ErrorCode::invalid_argument, {", 5], expected"}, [&] {
    inputs.divergence_statistics = View::host(saved.data(), {p.b - 1, 5});
    backward(context, inputs, p.options);
  });
  test::expect_error(ErrorCode::invalid_argument, {"divergence_statistics has shape"}, [&] {
    inputs.divergence_statistics = View::host(saved.data(), {p.b, 4});
    backward(context, inputs, p.options);
  });
  inputs.divergence_statistics = {};
  auto shard = p.options;
  shard.loss.vocab_size_total = 2 * p.v;
  test::expect_error(ErrorCode::invalid_argument, {"divergence_statistics is not given"},
                     [&] { backward(context, inputs, shard); });
}

TEST(LinearDistillationMisuse, ShardsThatDoNotBelongTogether) {
  Problem p;
  const Arrays arrays(p);
  Context context({.host_only = true});
  const auto inputs = arrays.inputs(Pass::forward_partial);
  const auto one = forward_partial(context, inputs, p.options);
  auto reverse = p.options;
  reverse.divergence = Divergence::reverse_kl;
  auto other = forward_partial(context, inputs, reverse);
  other.vocab_size_total = 0;  // as rows from elsewhere, of which nobody knows the columns
  using List = std::vector<ld::PartialResult>;
  test::expect_error(ErrorCode::invalid_argument, {"shards[1] is of reverse_kl"}, [&] {
    merge(List{one, other});
  });
  test::expect_error(ErrorCode::invalid_argument, {"no shard is given"}, [&] { merge(List{}); });
  auto short_one = one;
  short_one.divergence_rows.pop_back();
  test::expect_error(ErrorCode::invalid_argument, {"of its divergence"},
                     [&] { merge(List{short_one}); });
  const CombineInputs whole{.labels = inputs.labels};
  test::expect_error(ErrorCode::invalid_argument, {"the shards are of forward_kl"},
                     [&] { combine(one, whole, reverse); });
  test::expect_error(ErrorCode::invalid_argument, {"labels is not given"},
                     [&] { combine(one, {}, p.options); });
  const std::vector<float> class_weight(static_cast<std::size_t>(p.v), 1.0f);
  test::expect_error(ErrorCode::invalid_argument, {"class_weight is given; "}, [&] {
    combine(one, {.labels = inputs.labels, .class_weight = class_weight}, p.options);
  });
  auto wrong = p.options;
  wrong.temperature = 0.0f;
  test::expect_error(ErrorCode::invalid_argument, {"temperature is 0"},
                     [&] { combine(one, whole, wrong); });
}

}  // namespace
}  // namespace tessera::distillation
