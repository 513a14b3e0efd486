// SPDX-License-Identifier: Apache-2.0
#include "programs/progress.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace tessera::programs {
namespace {

TEST(Progress, QuickWorkSaysNothing) {
  testing::internal::CaptureStderr();
  { const Progress progress("tool", "still at it", std::chrono::hours(1)); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, LongWorkSaysSoAgainAndAgain) {
  using std::chrono::milliseconds;
  testing::internal::CaptureStderr();
  {
    const Progress progress("tool", "still at it", milliseconds(1), milliseconds(1));
    std::this_thread::sleep_for(milliseconds(300));
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("tool: 0 s: still at it\n"), 0u) << text;
  EXPECT_NE(text.find("still at it", 20), std::string::npos) << text;
}

}  // namespace
}  // namespace tessera::programs
