// SPDX-License-Identifier: Apache-2.0
// Calls as they are cut for CPUs of many cores or of little cache, on whatever the device is:
// results do not depend on how many work-groups share rows and columns, nor on how a gradient is
// stored.
#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <vector>

#include "host/opencl/runtime.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {

class ManyCores : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    auto* runtime = opencl::runtime_of(context_.state());
    if (runtime == nullptr || !runtime->facts().is_cpu) GTEST_SKIP() << "no OpenCL CPU";
    runtime->facts_for_test().compute_units = 64;
    runtime->facts_for_test().bf16_products = opencl::Bf16Products::emulated;
  }
  Context context_{{.warning_handler = [](const std::string&) {}}};
};

/// A few strips of rows in each product, and columns enough to be divided: of H in grad_w, of
/// tokens in logits and grad_x.
TEST_P(ManyCores, DivideColumns) {
  Case c;
  c.name = std::string("many_cores_") + to_string(GetParam());
  c.b = 301;
  c.h = 418;
  c.v = 50;
  c.x_type = c.w_type = GetParam();
  c.labels = Labels::some_ignored;
  c.bias = true;
  c.accumulate = true;  // so that no logits wait in grad_w, and backward forms them again
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
    EXPECT_TRUE(run_case(context_, "opencl.cpu", pass, c)) << to_string(pass);
  }
}

/// Too few rows of H for so many work-groups, which divide the vocabulary too; its last part is
/// shorter, and so is the last part of H.
TEST_P(ManyCores, FewTokensDivideTheVocabulary) {
  Case c;
  c.name = std::string("few_tokens_") + to_string(GetParam());
  c.b = 13;
  c.h = 1100;
  c.v = 3001;
  c.x_type = c.w_type = GetParam();
  c.w_layout = WLayout::vh;
  c.labels = Labels::some_ignored;
  for (const Pass pass : {Pass::backward, Pass::value_and_grad}) {
    EXPECT_TRUE(run_case(context_, "opencl.cpu", pass, c)) << to_string(pass);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ManyCores, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return to_string(type.param); });

/// grad_w of value_and_grad on a CPU whose last cache has so many bytes: beyond it, whole lines of
/// grad_w are stored past the caches (STORE_STREAMED), where they begin at addresses of lines.
std::vector<std::byte> grad_w_with_cache(std::int64_t cache, DType type, bool w_is_vh) {
  Context context({.warning_handler = [](const std::string&) {}});
  auto* runtime = opencl::runtime_of(context.state());
  if (runtime == nullptr || !runtime->facts().is_cpu) return {};
  runtime->facts_for_test().cache_bytes = cache;
  // More tokens than a vector has lanes, so that tiles are at their widest. Rows of H and of V are
  // whole lines; the last of the tiles that divide H is half full.
  constexpr std::int64_t b = 37, h = 224, v = 352;
  HostTensor x(type, {b, h});
  HostTensor w(type, {h, v}, w_is_vh ? Dims{1, h} : Dims{v, 1});
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (HostTensor* tensor : {&x, &w}) {
    for (std::int64_t i = 0; i < tensor->size(); ++i) {
      if (type == DType::f32) {
        tensor->as<float>()[static_cast<std::size_t>(i)] = normal(random);
      } else {
        tensor->as<bf16>()[static_cast<std::size_t>(i)] = bf16(normal(random));
      }
    }
  }
  std::vector<std::int32_t> labels(b);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i * 7);
  // Where nothing is stored stays NaN; what a caller gets of freed memory may hold the right
  // values.
  HostTensor grad_w(type, {h, v}, w_is_vh ? Dims{1, h} : Dims{v, 1});
  auto* data = static_cast<std::byte*>(grad_w.data());
  const std::int64_t bytes = grad_w.size() * static_cast<std::int64_t>(size_of(type));
  std::fill_n(data, bytes, std::byte{0xff});
  linear_cross_entropy::value_and_grad(context, {.x = x.view(), .labels = labels, .w = w.view()},
                                       {}, {.grad_w = grad_w.mutable_view()}, {},
                                       {.implementation = "opencl.cpu"});
  return {data, data + bytes};
}

TEST(StreamedGradients, HaveTheSameBits) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const bool w_is_vh : {true, false}) {
      const auto cached = grad_w_with_cache(std::int64_t{1} << 40, type, w_is_vh);
      if (cached.empty()) GTEST_SKIP() << "no OpenCL CPU";
      EXPECT_EQ(grad_w_with_cache(1, type, w_is_vh), cached)
          << to_string(type) << (w_is_vh ? " [V, H]" : " [H, V]");
    }
  }
}

}  // namespace
}  // namespace tessera::test
