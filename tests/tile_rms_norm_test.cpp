// SPDX-License-Identifier: Apache-2.0
// rms_norm on the tile machine: what blocks change and what they do not. rms_norm_test has its
// results against the textbook, misuse_rms_norm_test the blocks that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tessera/rms_norm.hpp"

namespace tessera::test {
namespace {

Context on_chip(const std::string& chip) {
  return Context({.device = chip, .warning_handler = [](const std::string&) {}});
}

rms_norm::ExecutionOptions with_block(std::int64_t block) {
  rms_norm::ExecutionOptions execution;
  execution.implementation = "tpu_tile";
  if (block > 0) execution.block_sizes = rms_norm::BlockSizes{block};
  return execution;
}

/// Arrays of one shape, for calls of both passes.
struct Rows {
  std::vector<float> x, dy, scale;
  rms_norm::Inputs in;

  Rows(std::int64_t b, std::int64_t h) : x(static_cast<std::size_t>(b * h)), dy(x.size()) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = std::sin(static_cast<float>(i));
      dy[i] = std::cos(0.7f * static_cast<float>(i));
    }
    for (std::int64_t i = 0; i < h; ++i) scale.push_back(1.0f + 0.01f * static_cast<float>(i % 7));
    in = {.x = View::host(x.data(), {b, h}), .scale = scale};
  }
  rms_norm::Inputs with_dy() const {
    rms_norm::Inputs all = in;
    all.dy = View::host(dy.data(), in.x.extents());
    return all;
  }
};

std::vector<float> values(const HostTensor& tensor) {
  const auto all = tensor.as<float>();
  return {all.begin(), all.end()};
}

TEST(TileRmsNorm, RowsAreTheSameWhateverTheBlock) {
  const Rows rows(37, 200);
  for (const std::string chip : {"v5p", "v6e"}) {
    Context context = on_chip(chip);
    const auto y = values(rms_norm::forward(context, rows.in, {}, with_block(0)).y);
    const auto first = rms_norm::backward(context, rows.with_dy(), {}, with_block(0));
    // More blocks than two cores divide evenly, one that is ragged, one for all, and beyond it.
    for (const std::int64_t block : {8, 16, 32, 37, 1000}) {
      SCOPED_TRACE(chip + " " + std::to_string(block));
      EXPECT_EQ(values(rms_norm::forward(context, rows.in, {}, with_block(block)).y), y);
      const auto again = rms_norm::backward(context, rows.with_dy(), {}, with_block(block));
      EXPECT_EQ(values(again.grad_x), values(first.grad_x));
      const auto sums = values(again.grad_scale), before = values(first.grad_scale);
      // Another order of 37 terms, each of some units.
      for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums[i], before[i], 1e-4f) << i;
      EXPECT_EQ(again.dispatch.block_sizes[0].value, std::min<std::int64_t>(block, 37));
      EXPECT_EQ(again.dispatch.block_source, BlockSource::caller);
    }
  }
}

/// What is counted before a call is what the machine finds in it. With these H one block more would
/// fit 16 MiB but for the smallest of the vectors beside the blocks.
TEST(TileRmsNorm, TheLargestLegalBlockRuns) {
  struct Largest {
    Pass pass;
    std::int64_t h, block;
  };
  Context context = on_chip("v4");
  for (const auto& c : {Largest{Pass::forward, 4096, 248}, Largest{Pass::backward, 5120, 128}}) {
    const Rows rows(512, c.h);
    const auto in = c.pass == Pass::forward ? rows.in : rows.with_dy();
    const auto why = [&](std::int64_t block) {
      return rms_norm::why_unsupported(context, "tpu_tile", c.pass, in, {}, {}, {},
                                       with_block(block));
    };
    std::int64_t block = 8;
    while (!why(block + 8)) block += 8;
    EXPECT_EQ(block, c.block);
    if (c.pass == Pass::forward) {
      EXPECT_TRUE(rms_norm::forward(context, in, {}, with_block(block)).y);
    } else {
      EXPECT_TRUE(rms_norm::backward(context, in, {}, with_block(block)).grad_x);
    }
  }
}

TEST(TileRmsNorm, InferredBlocksAreLegal) {
  const auto array = [](DType type, const Dims& extents) {
    return View::host(nullptr, type, extents);
  };
  for (const std::string chip : {"v3", "v4", "v5e", "v5p", "v6e", "v7"}) {
    Context context = on_chip(chip);
    for (const std::int64_t b : {1, 7, 12, 1000, 65536}) {
      for (const std::int64_t h : {1, 512, 4096, 20000}) {
        for (const DType type : {DType::f32, DType::bf16}) {
          const rms_norm::Inputs in{
              .x = array(type, {b, h}), .scale = array(type, {h}), .dy = array(type, {b, h})};
          const auto [blocks, source] =
              rms_norm::infer_block_sizes(context, "tpu_tile", Pass::backward, in);
          EXPECT_EQ(source, BlockSource::heuristic);
          EXPECT_FALSE(rms_norm::why_unsupported(context, "tpu_tile", Pass::backward, in, {}, {},
                                                 {}, with_block(blocks.b_block_size)))
              << chip << " " << b << " " << h << ": " << blocks.b_block_size;
          // Large where there is room, since each step waits for its copies.
          if (b == 65536 && h == 512) {
            EXPECT_GE(blocks.b_block_size, 512) << chip;
          }
        }
      }
    }
  }
}

TEST(TileRmsNorm, SaysWhatRan) {
  Context context = on_chip("TPU v6e");
  const Rows rows(12, 40);
  const auto forward = rms_norm::forward(context, rows.in, {}, with_block(8)).dispatch;
  EXPECT_EQ(forward.implementation, "tpu_tile");
  EXPECT_EQ(forward.device, "v6e on the tile machine");
  EXPECT_EQ(forward.schedule, "blocks_of_rows");
  EXPECT_EQ(forward.staged_bytes, 0);
  const auto backward = rms_norm::backward(context, rows.with_dy(), {}, with_block(8)).dispatch;
  EXPECT_EQ(backward.schedule, "rows_and_sums_of_cores");
  // Rows that do not lie one behind the other are copied for the machine.
  rms_norm::Inputs apart = rows.in;
  apart.x = View::host(rows.x.data(), {6, 40}, {80, 1});
  EXPECT_EQ(rms_norm::forward(context, apart, {}, with_block(0)).dispatch.staged_bytes, 6 * 40 * 4);
  for (const auto& info : rms_norm::implementations()) {
    EXPECT_FALSE(info.name == "tpu_tile" && info.by_default);
  }
}

}  // namespace
}  // namespace tessera::test
