// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "host/catalog/operators.hpp"
#include "tessera/tessera.hpp"

/// A small layer whose vocabulary is cut into shards, and the comparison of what they merge to.
namespace tessera::test {

namespace lce = linear_cross_entropy;

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

/// A layer over 3 x 3 rows and 61 words, and its shards.
struct ShardedLayer {
  static constexpr std::int64_t H = 6;
  static constexpr std::int64_t V = 61;
  Dims leading{3, 3};
  std::int64_t B = 9;
  std::vector<float> x, w, bias, weight, class_weight;
  std::vector<std::int64_t> labels;
  LossOptions options{};
  std::string implementation;
  Context context{ContextOptions{.host_only = true}};

  ShardedLayer() {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, std::int64_t n, float scale) {
      values.resize(static_cast<std::size_t>(n));
      for (auto& value : values) value = scale * normal(random);
    };
    fill(x, B * H, 2.0f);
    fill(w, H * V, 1.0f);
    fill(bias, V, 1.0f);
    fill(weight, B, 1.0f);  // some are negative
    fill(class_weight, V, 1.0f);
    for (auto& c : class_weight) c = std::abs(c);
    labels = {0, 60, -100, 17, 18, 30, 5, 44, 59};
    options.wants = every_output();
  }

  lce::Inputs inputs(std::int64_t begin, std::int64_t end) const {
    Dims extents = leading;
    extents.push_back(H);
    return {.x = View::host(x.data(), extents),
            .labels = View::host(labels.data(), leading),
            .w = View::host(w.data() + begin, {H, end - begin}, {V, 1}),
            .bias = View::host(bias.data() + begin, {end - begin}),
            .weight = View::host(weight.data(), leading),
            .class_weight = View::host(class_weight.data(), {V})};
  }

  PartialResult shard(std::int64_t begin, std::int64_t end) {
    LossOptions o = options;
    o.vocab_offset = begin;
    o.vocab_size_total = V;
    return lce::forward_partial(context, inputs(begin, end), o, {.implementation = implementation});
  }

  LossOptions total() const {
    LossOptions o = options;
    o.vocab_size_total = V;
    return o;
  }
  CombineInputs combine_inputs() const {
    const auto in = inputs(0, V);
    return {in.labels, in.weight, in.class_weight};
  }
};

/// Both NaN, equal infinities, or within a tolerance that covers f32 partial sums over 61 words.
inline void expect_close(const HostTensor& actual, const HostTensor& expected, const char* name) {
  ASSERT_EQ(actual.extents(), expected.extents()) << name;
  for (std::size_t i = 0; i < static_cast<std::size_t>(actual.size()); ++i) {
    const float a = actual.as<float>()[i];
    const float e = expected.as<float>()[i];
    if (std::isnan(e)) {
      EXPECT_TRUE(std::isnan(a)) << name << " " << i << ": " << a;
    } else if (std::isinf(e)) {
      EXPECT_EQ(a, e) << name << " " << i;
    } else {
      EXPECT_NEAR(a, e, 4e-6f * (1.0f + std::abs(e))) << name << " " << i;
    }
  }
}

inline void expect_same(const LossResult& actual, const LossResult& expected) {
  expect_close(actual.loss, expected.loss, "loss");
  expect_close(actual.lse, expected.lse, "lse");
  expect_close(actual.label_logprob, expected.label_logprob, "label_logprob");
  expect_close(actual.entropy, expected.entropy, "entropy");
  expect_close(actual.z_loss, expected.z_loss, "z_loss");
  expect_close(actual.statistics, expected.statistics, "statistics");
  ASSERT_EQ(actual.argmax.extents(), expected.argmax.extents());
  for (std::size_t i = 0; i < static_cast<std::size_t>(actual.argmax.size()); ++i) {
    EXPECT_EQ(actual.argmax.as<std::int32_t>()[i], expected.argmax.as<std::int32_t>()[i]) << i;
  }
}

/// Every implementation that is compiled in and needs no device.
inline std::vector<std::string> host_implementations() {
  std::vector<std::string> names;
  for (const auto& info : lce::implementations()) {
    // tpu_tile takes whole blocks of rows and columns alone; tile_loss_test is its own.
    if (info.name == "tpu_tile") continue;
    if (!info.name.starts_with("opencl")) names.push_back(info.name);
  }
  return names;
}

}  // namespace tessera::test
