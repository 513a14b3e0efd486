// SPDX-License-Identifier: Apache-2.0
// The loss's block rules on the tile machine, the blocks that are chosen, and what its kernels
// count.
#include <gtest/gtest.h>

#include <algorithm>

#include "host/linear_cross_entropy/tile/kernel.hpp"
#include "tests/support/tile_fixture.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

constexpr DType f32 = DType::f32, bf16_type = DType::bf16;

Context on_chip(const std::string& chip) {
  return Context({.device = chip, .warning_handler = [](const std::string&) {}});
}

/// What is asked of `tpu_tile` by shapes and types alone.
struct Question {
  std::int64_t b = 1024, h = 512, v = 1000;
  DType x = f32, w = f32;
  std::optional<lce::BlockSizes> blocks{};
  Pass pass = Pass::forward;

  std::optional<std::string> refusal(const std::string& chip) const {
    Context context = on_chip(chip);
    const lce::Inputs in{
        .x = View::host(nullptr, x, {b, h}),
        .labels = View::host(nullptr, DType::i32, {b}),
        .w = View::host(nullptr, w, {h, v}),
        .statistics = pass == Pass::backward ? View::host(nullptr, f32, {b, 2}) : View()};
    lce::ExecutionOptions execution;
    execution.implementation = "tpu_tile";
    execution.block_sizes = blocks;
    const auto reason = lce::why_unsupported(context, "tpu_tile", pass, in, {}, {}, {}, execution);
    if (!reason) {
      EXPECT_GT(lce::plan(context, pass, in, {}, {}, {}, execution).workspace_bytes, 0);
      return reason;
    }
    // The error says the same.
    try {
      lce::plan(context, pass, in, {}, {}, {}, execution);
      ADD_FAILURE() << "planned, although: " << *reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find(*reason), std::string::npos) << error.what();
    }
    return reason;
  }
  void expect_refused(const std::string& chip, const std::string& rule) const {
    const auto reason = refusal(chip);
    ASSERT_TRUE(reason) << rule;
    EXPECT_NE(reason->find(rule), std::string::npos) << *reason;
  }
};

TEST(TileLossBlocks, RefusedByRule) {
  const auto blocks = [](std::int64_t b, std::int64_t h, std::int64_t v) {
    return Question{.blocks = lce::BlockSizes{b, h, v}};
  };
  blocks(1024, 512, 300).expect_refused("v5p", "R7");
  blocks(1024, 384, 256).expect_refused("v5p", "R8");
  blocks(512, 512, 256).expect_refused("v5p", "R9");
  EXPECT_FALSE(blocks(512, 512, 256).refusal("v6e"));
  Question wide{.b = 8192, .blocks = lce::BlockSizes{8192, 128, 4096}};
  wide.expect_refused("v5p", "R10");
  Question large{.b = 4096, .blocks = lce::BlockSizes{4096, 512, 1024}};
  large.expect_refused("v4", "R13");
  EXPECT_FALSE(large.refusal("v5p"));
  Question odd_vector{.b = 768, .blocks = lce::BlockSizes{384, 512, 256}};
  odd_vector.expect_refused("v5p", "R3");
  Question half;
  half.w = DType::f16;
  half.expect_refused("v5p", "MXU");
  half.w = bf16_type;
  EXPECT_FALSE(half.refusal("v5p"));
  half.expect_refused("v3", "MXU");
  // Without blocks: none are legal.
  Question ragged;
  ragged.h = 100;
  ragged.expect_refused("v5p", "R8");
  ragged = {};
  ragged.b = 1000;
  ragged.expect_refused("v5p", "R8");
}

TEST(TileLossBlocks, BlocksAreChosen) {
  const auto infer = [](const std::string& chip, Pass pass, std::int64_t b, std::int64_t h,
                        std::int64_t v, DType type = DType::bf16) {
    Context context = on_chip(chip);
    return lce::infer_block_sizes(context, "tpu_tile", pass, b, h, v, type, type);
  };
  // Published ones, by any of the chip's names.
  using Answer = std::pair<lce::BlockSizes, BlockSource>;
  EXPECT_EQ(infer("TPU v5p", Pass::forward, 8192, 4096, 128256),
            (Answer{{1024, 512, 512}, BlockSource::tuned_table}));
  EXPECT_EQ(infer("TPU v5 lite", Pass::backward, 2048, 512, 8192),
            (Answer{{1024, 256, 1024}, BlockSource::tuned_table}));
  EXPECT_EQ(infer("v6", Pass::forward, 2048, 512, 8192).first, (lce::BlockSizes{1024, 256, 2048}));
  // A batch that they do not divide takes the nearest that does.
  EXPECT_EQ(infer("v6e", Pass::forward, 640, 512, 8192).first, (lce::BlockSizes{640, 256, 2048}));
  // 32 MiB of logits do not fit into 16 MiB.
  const auto v4 = infer("v4", Pass::forward, 8192, 4096, 128256);
  EXPECT_EQ(v4.second, BlockSource::heuristic);
  // The memory model's are legal everywhere, and large where there is room.
  for (const std::string chip : {"v3", "v4", "v5e", "v5p", "v6e", "v7"}) {
    for (const Pass pass : {Pass::forward, Pass::backward, Pass::value_and_grad}) {
      for (const std::int64_t b : {128, 384, 1024, 6144}) {
        const auto [blocks, source] = infer(chip, pass, b, 1280, 50257, DType::f32);
        Question legal{b, 1280, 50257, f32, f32, blocks, pass};
        EXPECT_FALSE(legal.refusal(chip)) << chip << " " << b;
        EXPECT_EQ(source, BlockSource::heuristic);
        EXPECT_GE(blocks.b_block_size * blocks.v_block_size, std::min<std::int64_t>(b, 1024) * 256)
            << chip << " " << b;
      }
    }
  }
}

TEST(TileLossKernels, SameBitsInEveryOrder) {
  using namespace lce::tpu_tile;
  std::vector<float> x(256 * 128), w(128 * 300), coefficients(256, 0.5f);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8.0f;
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.01f * (static_cast<float>(i % 23) - 11.0f);
  std::vector<std::int32_t> labels(256, 299);
  const Kernel k{.b = 256, .h = 128, .v = 300, .blocks = {128, 128, 128}};
  std::vector<std::vector<float>> runs;
  tile::test::for_each_order([&](const tile::MachineOptions& options) {
    tile::Machine machine(options);
    const auto floats = [&](const char* name, const tile::Shape& extents) {
      return machine.empty_ref<float>(name, extents);
    };
    const auto borrowed = machine.array<float>("gain", View(coefficients));
    const auto max = machine.array<float>("max", View(coefficients));
    const auto hit = machine.array<float>("hit", View(coefficients));
    const BackwardArrays a{.x = machine.array<float>("x", View::host(x.data(), {256, 128})),
                           .w = machine.array<float>("w", View::host(w.data(), {128, 300})),
                           .labels = machine.array<std::int32_t>("labels", View(labels)),
                           .bias = {},
                           .class_weight = {},
                           .max = max,
                           .gain = borrowed,
                           .hit = hit,
                           .smooth = {},
                           .grad_x = floats("grad_x", {2, 256, 128}),
                           .grad_w = floats("grad_w", {128, 384}),
                           .grad_bias = floats("grad_bias", {2, 1, 300})};
    backward(machine, k, a);
    std::vector<float> all;
    for (const auto& array : {*a.grad_x, *a.grad_w, *a.grad_bias}) {
      const auto values = machine.values(array);
      all.insert(all.end(), values.begin(), values.end());
    }
    runs.push_back(std::move(all));
  });
  for (const auto& run : runs) EXPECT_EQ(run, runs.front());
}

TEST(TileLossKernels, DryRunsCountWhatRunsDo) {
  using namespace lce::tpu_tile;
  const Operands o{.w_type = tile::ElementType::bf16,
                   .bias = true,
                   .class_weight = true,
                   .class_terms = true,
                   .entropy = true,
                   .argmax = true,
                   .smooth = true,
                   .grad_bias = true};
  for (const char* chip : {"v5e", "v5p"}) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const Kernel k{.b = 256, .h = 256, .v = 641, .blocks = {128, 128, 128}, .cap = 5.0f};
      std::vector<tile::Report> reports;
      for (const bool dry : {false, true}) {
        tile::Machine machine({.chip = tile::find_chip(chip), .dry_run = dry});
        run_alone(machine, pass, k, o);
        reports.push_back(machine.report());
        const auto declared = tile::vmem_use(tile::find_chip(chip), allocations(pass, k, o));
        EXPECT_EQ(machine.report().vmem_high_water_bytes, declared.declared);
      }
      EXPECT_EQ(reports[0].copies, reports[1].copies);
      EXPECT_EQ(reports[0].bytes_copied, reports[1].bytes_copied);
      EXPECT_EQ(reports[0].work.flops, reports[1].work.flops);
      EXPECT_EQ(reports[0].work.vpu_ops, reports[1].work.vpu_ops);
      EXPECT_EQ(reports[0].work.eup_ops, reports[1].work.eup_ops);
      const double product = 2.0 * 256 * 256 * 768;
      EXPECT_EQ(reports[0].work.flops, pass == Pass::forward ? product : 3 * product);
    }
  }
}

TEST(TileLossKernels, ModelledTimesArePublishedOnes) {
  using namespace lce::tpu_tile;
  // Of Tokamax on one core of a TPU7x, x f32 and w bf16, in one bf16 pass.
  const std::pair<Pass, double> published[] = {{Pass::forward, 5.941e-3},
                                               {Pass::backward, 22.894e-3}};
  for (const auto& [pass, seconds] : published) {
    Kernel k{.b = 4096, .h = 4096, .v = 128256};
    k.blocks = {1024, pass == Pass::forward ? 1024 : 512, 2048};
    k.product = {};
    tile::Machine machine({.chip = tile::find_chip("v7"), .dry_run = true});
    run_alone(machine, pass, k, {.w_type = tile::ElementType::bf16});
    // The model's own worst row is 2.4 % off, with schedules that are not ours.
    EXPECT_NEAR(machine.report().time.modelled_seconds / seconds, 1.0, 0.03) << to_string(pass);
  }
}

TEST(TileLossKernels, BytesOfALargeDryRun) {
  using namespace lce::tpu_tile;
  const Kernel k{.b = 8192, .h = 4096, .v = 128256, .blocks = {1024, 512, 2048}};
  const Operands o{.x_type = tile::ElementType::bf16, .w_type = tile::ElementType::bf16};
  tile::Machine machine({.chip = tile::find_chip("v5e"), .dry_run = true});
  run_alone(machine, Pass::forward, k, o);
  // A tile of x for each of 63 blocks of columns, of w for each of 8 blocks of rows.
  EXPECT_EQ(machine.report().buffer("x").bytes_read, std::int64_t{2} * 8192 * 4096 * 63);
  EXPECT_EQ(machine.report().buffer("w").bytes_read, std::int64_t{2} * 4096 * 128256 * 8);
  machine = tile::Machine({.chip = tile::find_chip("v5e"), .dry_run = true});
  run_alone(machine, Pass::backward, k, o);
  EXPECT_EQ(machine.report().buffer("x").bytes_read, std::int64_t{4} * 8192 * 4096 * 63);
  EXPECT_EQ(machine.report().buffer("grad_x").bytes_written, std::int64_t{4} * 8192 * 4096 * 63);
  EXPECT_EQ(machine.report().buffer("grad_x").bytes_read, std::int64_t{4} * 8192 * 4096 * 62);
  EXPECT_EQ(machine.report().buffer("grad_w").bytes_written,
            std::int64_t{4} * 4096 * 63 * 2048 * 8);
  EXPECT_EQ(machine.report().buffer("grad_w").bytes_read, std::int64_t{4} * 4096 * 63 * 2048 * 7);
}

}  // namespace
}  // namespace tessera::test
