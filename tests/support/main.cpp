// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "tests/support/compare.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/runner.hpp"

int main(int argc, char** argv) {
  // Before GoogleTest makes its lists of implementations.
  if (!tessera::test::take_environment()) return 2;
  testing::InitGoogleTest(&argc, argv);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  tessera::test::report_crashes();
#endif
  const int code = RUN_ALL_TESTS();
  if (code == 0 && testing::UnitTest::GetInstance()->successful_test_count() == 0 &&
      !testing::GTEST_FLAG(list_tests)) {
    std::puts("[  SKIPPED ] every case");  // for ctest, see CMakeLists.txt
  }
  tessera::test::close_shared_context();
  tessera::test::Summary::instance().write();
#ifdef __SANITIZE_ADDRESS__
  // While the driver's threads wait, not while they end with the process: LeakSanitizer looks into
  // each, and sometimes crashes at one (section_asan of scripts/check.sh).
  __lsan_do_leak_check();
#endif
  return code;
}
