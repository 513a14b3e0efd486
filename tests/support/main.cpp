// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "tests/support/compare.hpp"
#include "tests/support/runner.hpp"

#ifdef TESSERA_OPENCL
#include "host/opencl/embedded_kernels.hpp"
#include "tests/support/test_engines.hpp"
#endif

namespace {

/// Every .cl file below TESSERA_TEST_KERNEL_DIR stands for the embedded one of the same path, so
/// that a planted bug needs no rebuild.
bool override_kernels() {
  const char* folder = std::getenv("TESSERA_TEST_KERNEL_DIR");
  if (folder == nullptr || *folder == '\0') return true;
#ifdef TESSERA_OPENCL
  namespace fs = std::filesystem;
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".cl" && entry.path().extension() != ".h") continue;
    std::ifstream stream(entry.path());
    const std::string text((std::istreambuf_iterator<char>(stream)), {});
    tessera::opencl::override_embedded_kernel(fs::relative(entry.path(), folder).generic_string(),
                                              text);
    ++files;
  }
  if (files > 0) return true;
  std::cerr << "TESSERA_TEST_KERNEL_DIR=" << folder << " holds no .cl file\n";
#else
  std::cerr << "TESSERA_TEST_KERNEL_DIR needs a build with OpenCL\n";
#endif
  return false;
}

}  // namespace

int main(int argc, char** argv) {
#ifdef TESSERA_OPENCL
  // Before GoogleTest makes its lists of implementations.
  if (!tessera::test::add_test_engines()) return 2;
#endif
  testing::InitGoogleTest(&argc, argv);
  if (!override_kernels()) return 2;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  tessera::test::report_crashes();
#endif
  const int code = RUN_ALL_TESTS();
  tessera::test::close_shared_context();
  tessera::test::Summary::instance().write();
#ifdef __SANITIZE_ADDRESS__
  // While the driver's threads wait, not while they end with the process: LeakSanitizer looks into
  // each, and sometimes crashes at one (section_asan of scripts/check.sh).
  __lsan_do_leak_check();
#endif
  return code;
}
