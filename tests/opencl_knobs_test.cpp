// SPDX-License-Identifier: Apache-2.0
// Knobs: what a call reports can be given back, whatever is legal gives right results, and what is
// not is one error that says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "host/dispatch/context_state.hpp"
#include "host/engines/engine.hpp"
#include "tests/support/matrix.hpp"
#include "tests/support/pairs.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {

namespace lce = linear_cross_entropy;
namespace sce = softmax_cross_entropy;

View shape(DType type, const Dims& extents, const Dims& strides = {}) {
  return View::host(nullptr, type, extents, strides);
}

class Knobs : public ImplementationTest {
 protected:
  Plan linear(const std::vector<NamedValue>& knobs, DType type = DType::f32) {
    lce::ExecutionOptions execution;
    execution.implementation = GetParam();
    execution.knobs = knobs;
    LossOptions options;
    options.wants.grad_x = options.wants.grad_w = true;
    return lce::plan(shared_context(), Pass::value_and_grad,
                     {.x = shape(type, {70, 33}),
                      .labels = shape(DType::i32, {70}),
                      .w = shape(type, {33, 301}, {1, 33})},
                     {}, {}, options, execution);
  }
  Plan softmax(const std::vector<NamedValue>& knobs) {
    sce::ExecutionOptions execution;
    execution.implementation = GetParam();
    execution.knobs = knobs;
    return sce::plan(shared_context(), Pass::forward,
                     {.logits = shape(DType::f32, {70, 301}), .labels = shape(DType::i32, {70})},
                     {}, {}, {}, execution);
  }
  /// The error of a plan.
  template <class Planned>
  static std::string refusal(const Planned& planned) {
    try {
      planned();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  static void expect_has(const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
  }
};
/// The knobs of other implementations follow from the call.
class OpenclKnobs : public Knobs {};

TEST_P(Knobs, WhatIsReportedCanBeGivenBack) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto first = linear({}, type);
    const auto again = linear(first.dispatch.knobs, type);
    EXPECT_EQ(again.dispatch.knobs, first.dispatch.knobs);
    EXPECT_EQ(again.workspace_bytes, first.workspace_bytes);
    EXPECT_EQ(to_string(again.dispatch), to_string(first.dispatch));
  }
  const auto first = softmax({});
  EXPECT_EQ(softmax(first.dispatch.knobs).dispatch.knobs, first.dispatch.knobs);
}

/// Gradients without an element are left out by the call, and by its plan.
TEST_P(OpenclKnobs, WhatIsReportedOfNoElementsCanBeGivenBack) {
  for (const auto& [b, h] : {std::pair<std::int64_t, std::int64_t>{0, 5}, {3, 0}}) {
    Case c;
    c.name = "knobs_of_nothing_" + std::to_string(b);
    c.b = b;
    c.h = h;
    c.gradients = grad_x_bit;
    c.gradient_filter_eps = 0x1p-7f;
    c.knobs = plan_case(shared_context(), GetParam(), Pass::value_and_grad, c).dispatch.knobs;
    EXPECT_TRUE(run_case(shared_context(), GetParam(), Pass::value_and_grad, c)) << c.name;
  }
}

/// Each value of each knob once; all that go together are `long`.
TEST_P(OpenclKnobs, EveryLegalValueIsRight) {
  const auto& entry = engines::engine_entry(GetParam().substr(std::string("opencl.").size()));
  const auto& facts = opencl::runtime_of(shared_context().state())->facts();
  std::vector<std::string> notes;
  auto variants = entry.variants(facts, {.n = 70}, nullptr, notes);
  ASSERT_FALSE(variants.empty());
  // All of them once: at another vector width or under a sanitizer they would be the same kernels.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  variants.resize(1);
#endif
  if (std::getenv("TESSERA_LAYER_LIMITS") != nullptr) variants.resize(1);
  // The caller's layouts take turns, so that each file is compiled for few of the many shapes.
  int turn = 0;
  std::set<std::pair<std::string, std::int64_t>> seen;
  for (const auto& variant : variants) {
    bool is_new = wants_product();
    for (const auto& [name, value] : variant->knobs()) {
      is_new = seen.emplace(name, value).second || is_new;
    }
    if (!is_new) continue;
    Case c;
    c.name = "knobs";
    for (const auto& [name, value] : variant->knobs()) {
      c.name += "_" + name + "_" + std::to_string(value);
    }
    c.b = 70;
    c.h = 33;
    c.v = 301;
    c.w_layout = turn++ % 2 == 0 ? WLayout::vh : WLayout::hv;
    c.bias = true;
    c.labels = Labels::some_ignored;
    c.knobs = variant->knobs();
    EXPECT_TRUE(run_case(shared_context(), GetParam(), Pass::value_and_grad, c)) << c.name;
  }
}

TEST_P(OpenclKnobs, TheScheduleIsTheCallers) {
  Case c;
  c.name = "knobs_chunk_rows";
  c.b = 300;
  c.h = 33;
  c.v = 301;
  const auto tile = std::int64_t{128};  // whole tiles of every engine
  c.knobs = {{"chunk_rows", tile}};
  EXPECT_TRUE(run_case(shared_context(), GetParam(), Pass::forward, c));
  const auto message = refusal([&] { softmax({{"chunk_rows", 71}}); });
  expect_has(message, {"chunk_rows = 71", "70"});
}

TEST_P(Knobs, WhatIsNotLegalIsRefused) {
  expect_has(refusal([&] {
               linear({{"no_such_knob", 3}});
             }),
             {"knobs: ", GetParam().c_str(), "no_such_knob", "leave it out"});
  expect_has(refusal([&] { softmax({{"no_such_knob", 3}}); }), {"no_such_knob"});
  for (const auto& knob : linear({}).dispatch.knobs) {
    const auto message = refusal([&] { linear({{knob.name, knob.value + 1000003}}); });
    expect_has(message, {knob.name.c_str(), std::to_string(knob.value + 1000003).c_str()});
  }
  // And a call leaves its outputs alone.
  const std::vector<float> x(2, 1.0f), w(6, 1.0f);
  const std::vector<std::int32_t> labels = {1};
  float loss = 42.0f;
  lce::ExecutionOptions execution;
  execution.implementation = GetParam();
  execution.knobs = {{"no_such_knob", 3}};
  refusal([&] {
    lce::forward(shared_context(),
                 {.x = View::host(x.data(), {1, 2}),
                  .labels = View::host(labels.data(), {1}),
                  .w = View::host(w.data(), {2, 3})},
                 {.loss = MutableView::host(&loss, {})}, {}, execution);
  });
  EXPECT_EQ(loss, 42.0f);
}

INSTANTIATE_TEST_SUITE_P(All, Knobs,
                         testing::ValuesIn(implementations_of<lce::Operator>(takes_any_shape)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Knobs);
INSTANTIATE_TEST_SUITE_P(All, OpenclKnobs,
                         testing::ValuesIn(implementations_of<lce::Operator>(is_on_opencl)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpenclKnobs);

}  // namespace
}  // namespace tessera::test
