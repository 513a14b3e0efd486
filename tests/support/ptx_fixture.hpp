// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "host/engines/wgmma_probe.hpp"
#include "host/opencl/program_cache.hpp"
#include "tests/ptx/driver_control.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test {

/// Tests of a device of NVIDIA's whose kernels run in an interpreter (tests/ptx).
class PtxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!driver_.loaded()) GTEST_SKIP() << "no clang-19 and libclc-19, or a loader without layers";
    driver_.reset();
    if (devices().empty()) GTEST_SKIP() << "no OpenCL device for the layer to stand before";
  }
  void TearDown() override {
    if (!driver_.loaded()) return;
    EXPECT_EQ(driver_.fault(), "");
  }
  /// A new context's, so that nothing is known.
  engines::WgmmaVerdict verdict(const ContextOptions& options = quiet()) {
    Context context(options);
    auto& runtime = *opencl::runtime_of(context.state());
    return runtime.keep<engines::Wgmma>().verdict(runtime);
  }
  /// This process's own, which the test removes.
  static std::filesystem::path new_folder() {
    std::string name = testing::TempDir() + "/tessera_ptx_XXXXXX";
    return mkdtemp(name.data());
  }
  static ContextOptions quiet() {
    return {.warning_handler = [](const std::string&) {}};
  }

  PtxDriver& driver_ = PtxDriver::get(TESSERA_PTX_DRIVER);
};

}  // namespace tessera::test
