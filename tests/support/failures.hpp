// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <string>

namespace tessera::test {

/// What GoogleTest would have said of the failures in `body`, one paragraph each, or nothing.
template <class Body>
std::string failures_of(const Body& body) {
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    body();
  }
  std::string text;
  for (int i = 0; i < results.size(); ++i) {
    if (results.GetTestPartResult(i).failed()) {
      text += results.GetTestPartResult(i).message() + std::string("\n");
    }
  }
  return text;
}

}  // namespace tessera::test
