// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "tessera/context.hpp"
#include "tests/layer/layer_control.hpp"

namespace tessera::test {

/// Tests of one process with the layer, each of which leaves no OpenCL object behind. Base: what
/// GoogleTest has, with a parameter or without.
template <class Base = testing::Test>
class LayerFixture : public Base {
 protected:
  void SetUp() override {
    if (!layer_.loaded()) GTEST_SKIP() << "this OpenCL loader takes no layers";
    layer_.reset();
    if (devices().empty()) GTEST_SKIP() << "no OpenCL device";
    layer_.reset();
    before_ = layer_.live();
  }
  void TearDown() override {
    if (!layer_.loaded()) return;
    layer_.reset();
    EXPECT_EQ(layer_.live(), before_);
  }

  Layer& layer_ = Layer::get(TESSERA_TEST_LAYER);
  std::map<std::string, long> before_;
};

}  // namespace tessera::test
