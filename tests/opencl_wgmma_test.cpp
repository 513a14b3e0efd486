// SPDX-License-Identifier: Apache-2.0
// The gates before the matrix unit of NVIDIA's Hopper on devices that are none: each says why it is
// closed.
#include <gtest/gtest.h>

#include "host/engines/wgmma.hpp"
#include "host/opencl/program_cache.hpp"
#include "host/operators/matrix_unit.hpp"

namespace tessera::test {
namespace {

class WgmmaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!context_.has_device() || !runtime().facts().is_cpu) GTEST_SKIP() << "no OpenCL CPU";
  }
  opencl::Runtime& runtime() { return *opencl::runtime_of(context_.state()); }
  opencl::DeviceFacts& facts() { return runtime().facts_for_test(); }
  void pretend_to_be_one() {
    facts().architecture = "sm_90";
    facts().sub_group_sizes = {32};
    facts().local_memory_bytes = 48 << 10;
    facts().max_work_group_size = 384;
  }
  std::string reason() { return runtime().keep<engines::Wgmma>().verdict(runtime()).reason; }

  Context context_;
};

TEST_F(WgmmaTest, ThisDeviceIsNone) {
  EXPECT_EQ(reason(), "the device is not NVIDIA's sm_90: its architecture is unknown");
  EXPECT_EQ(operators::wgmma_state(context_), std::nullopt);
}

TEST_F(WgmmaTest, EachFactIsAsked) {
  pretend_to_be_one();
  // Later ones than sm_90 have another unit.
  for (const char* other : {"sm_80", "sm_100", "gfx942"}) {
    facts().architecture = other;
    EXPECT_EQ(reason(),
              std::string("the device is not NVIDIA's sm_90: its architecture is ") + other);
  }
  pretend_to_be_one();
  facts().sub_group_sizes = {16};
  EXPECT_EQ(reason(), "it needs warps of 32, the device has 16");
  pretend_to_be_one();
  facts().local_memory_bytes = 16 << 10;
  EXPECT_EQ(reason(), "it needs 49152 bytes of local memory, the device reports 16384");
  pretend_to_be_one();
  facts().max_work_group_size = 256;
  EXPECT_EQ(reason(), "it needs work-groups of 384, the device takes 256");
}

TEST_F(WgmmaTest, ADriverThatDoesNotTakeTheInstructionsIsAskedOnce) {
  pretend_to_be_one();
  const auto builds = runtime().programs().builds();
  const std::string closed = reason();
  EXPECT_TRUE(closed.starts_with("the driver does not take it: ")) << closed;
  EXPECT_NE(closed.find("engines/wgmma/probe.cl"), std::string::npos) << closed;
  EXPECT_EQ(closed.find('\n'), std::string::npos);
  EXPECT_EQ(operators::wgmma_state(context_), "closed: " + closed);
  EXPECT_EQ(runtime().programs().builds(), builds + 1);
}

}  // namespace
}  // namespace tessera::test
