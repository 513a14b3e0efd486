// SPDX-License-Identifier: Apache-2.0
// Contexts where programs end, move and fork: calls from destructors of static objects, a Context
// that was moved from, one in a forked child.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tessera.hpp"
#include "tessera/tile/chip.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/forked.hpp"

namespace tessera {
namespace {

using test::status_of_child;
namespace lce = linear_cross_entropy;

/// A call of two rows, of which the loss is log 3 on every implementation.
struct Call {
  std::vector<float> x = std::vector<float>(2 * 4);
  std::vector<float> w = std::vector<float>(4 * 3);
  std::vector<std::int32_t> labels = {0, 2};

  lce::Inputs inputs() const {
    return {.x = View::host(x.data(), {2, 4}),
            .labels = View(labels),
            .w = View::host(w.data(), {4, 3})};
  }
  lce::Result run(Context& context, const std::string& implementation = {}) const {
    lce::ExecutionOptions execution;
    if (!implementation.empty()) execution.implementation = implementation;
    return lce::value_and_grad(context, inputs(), LossOptions{}, execution);
  }
  static bool is_right(const lce::Result& result) {
    return std::abs(result.loss.as<float>()[0] - std::log(3.0f)) < 1e-6f;
  }
};

/// Made before the library's own static objects, and destroyed after them, and after those of a
/// driver, which can compile nothing any more.
struct Late {
  ~Late() {
    Context context{ContextOptions{.warning_handler = [](const std::string&) {}}};
    const auto result = Call().run(context);
    bool is_right =
        Call::is_right(result) && !lce::implementations().empty() && !tile::chips().empty();
    for (const auto& refusal : result.dispatch.refused) {
      is_right &= !context.has_device() || refusal.reason.starts_with("static objects are being");
    }
    _exit(is_right ? 0 : 1);
  }
};

TEST(LifetimeDeathTest, ACallFromADestructorOfAStaticObject) {
  if (std::getenv("OPENCL_LAYERS") != nullptr) GTEST_SKIP() << "a layer ends before the call";
  // In a process of its own, which has not called anything before.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static Late late;
        Context context;
        if (!Call::is_right(Call().run(context))) _exit(2);
        std::exit(3);
      },
      testing::ExitedWithCode(0), "");
}

void expect_moved_from(const std::function<void()>& use) {
  test::expect_error(ErrorCode::invalid_argument, {"moved from"}, use);
}

TEST(Lifetime, AContextThatWasMovedFrom) {
  Context first{ContextOptions{.host_only = true}};
  Context second = std::move(first);
  EXPECT_TRUE(Call::is_right(Call().run(second)));
  // NOLINTBEGIN(bugprone-use-after-move): what this is about
  EXPECT_FALSE(first.has_device());
  EXPECT_EQ(first.threads(), 0);
  EXPECT_EQ(first.native_context(), nullptr);
  EXPECT_EQ(first.native_device(), nullptr);
  EXPECT_EQ(first.native_queue(), nullptr);
  EXPECT_EQ(first.pooled_bytes(), 0);
  EXPECT_EQ(first.device_info().name, "");
  expect_moved_from([&] { first.trim(); });
  expect_moved_from([&] { Call().run(first); });
  expect_moved_from([&] { lce::plan(first, Pass::forward, Call().inputs(), {}, {}, {}); });
  expect_moved_from([&] { lce::cost_estimate(first, Pass::forward, Call().inputs(), {}, {}, {}); });
  expect_moved_from([&] { lce::infer_block_sizes(first, "eigen", Pass::forward, 2, 4, 3); });
  expect_moved_from(
      [&] { lce::why_unsupported(first, "eigen", Pass::forward, Call().inputs(), {}, {}); });
  const Context copy = first;
  EXPECT_FALSE(copy.has_device());
  first = second;
  EXPECT_TRUE(Call::is_right(Call().run(first)));
  // NOLINTEND(bugprone-use-after-move)
}

bool names_the_fork(const std::string& text) { return text.find("forked") != std::string::npos; }

/// Calls in a child: the default falls back to the host where the parent had a device.
int calls_in_child(Context& context, bool had_device) {
  const auto result = Call().run(context);
  if (!Call::is_right(result)) return 1;
  if (result.dispatch.implementation != "eigen") return 2;
  if (had_device) {
    if (result.dispatch.refused.empty()) return 3;
    for (const auto& refusal : result.dispatch.refused) {
      if (!names_the_fork(refusal.reason)) return 4;
    }
    if (result.dispatch.warnings.empty()) return 5;
    const auto reason =
        lce::why_unsupported(context, "opencl", Pass::forward, Call().inputs(), {}, {});
    if (!reason || !names_the_fork(*reason)) return 6;
    try {
      Call().run(context, "opencl.cpu");
      return 7;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported || !names_the_fork(error.what())) return 8;
    }
  }
  return 0;
}

TEST(Lifetime, AForkedChildComputesOnTheHost) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer follows no forked child of a process with threads";
#endif
  Context context{ContextOptions{.threads = 2, .warning_handler = [](const std::string&) {}}};
  // Threads of the pool, and those of a driver, run before the fork.
  ASSERT_TRUE(Call::is_right(Call().run(context)));
  ASSERT_TRUE(Call::is_right(Call().run(context, "eigen")));
  const bool had_device = context.has_device();
  EXPECT_EQ(status_of_child([&] { return calls_in_child(context, had_device); }), 0);
  // A Context of the child's own, and the end of the parent's there.
  EXPECT_EQ(status_of_child([&] {
              Context own{ContextOptions{.warning_handler = [](const std::string&) {}}};
              return own.has_device() ? 10 : calls_in_child(own, had_device);
            }),
            0);
  EXPECT_EQ(status_of_child([&] {
              auto moved = std::make_optional<Context>(std::move(context));
              moved.reset();
              return 0;
            }),
            0);
  ASSERT_TRUE(Call::is_right(Call().run(context)));
}

TEST(Lifetime, AForkBeforeTheFirstContext) {
  EXPECT_EQ(status_of_child([] {
              Context own{ContextOptions{.host_only = true}};
              return Call::is_right(Call().run(own)) ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace tessera
