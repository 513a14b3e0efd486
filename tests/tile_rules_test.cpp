// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/linear_cross_entropy_tile.hpp"

namespace tessera::tile {
namespace {

using linear_cross_entropy::BlockSizes;
using linear_cross_entropy::tpu_tile::BlockRules;
namespace tpu_tile = linear_cross_entropy::tpu_tile;
using enum ElementType;

constexpr double mib = 1 << 20;

std::string rules(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& v : violations) {
    EXPECT_EQ(v.message.rfind(v.rule + ": ", 0), 0u) << v.message;
    text += (text.empty() ? "" : " ") + v.rule;
  }
  return text;
}

// Every verdict of JAX 0.10.2's TPU lowering (tests/tile_goldens/make_block_legality.py).
TEST(TileRules, AgreeWithJaxLowering) {
  std::ifstream stream(TESSERA_GOLDENS "/block_legality.json");
  const auto golden = nlohmann::json::parse(stream);
  int compared = 0;
  int refused = 0;
  for (const auto& vector : golden["vectors"]) {
    const std::string dtype = vector["dtype"];
    BlockShape block;
    block.space = vector["space"] == "hbm" ? MemorySpace::hbm : MemorySpace::vmem;
    block.zero_index = vector["index"] == "zero";
    block.dims.emplace();
    for (const auto& dim : vector["block"])
      block.dims->push_back(dim.is_null() ? squeezed() : BlockDim(dim.get<std::int64_t>()));
    const std::string wanted = vector["refused"].is_null() ? "" : vector["refused"];
    for (const std::string chip : vector["chips"]) {
      const auto found = check_block(find_chip(chip), "x", vector["shape"].get<Shape>(),
                                     dtype == "f32"    ? f32
                                     : dtype == "bf16" ? bf16
                                                       : i8,
                                     block);
      EXPECT_EQ(found.empty() ? "" : found[0].rule, wanted) << chip << " " << vector.dump();
      ++compared;
      refused += !found.empty();
    }
  }
  EXPECT_EQ(compared, golden["count"].get<int>());
  EXPECT_GE(compared, 441);
  EXPECT_GE(refused, 100);
  EXPECT_GE(compared - refused, 100);
}

std::string block_rules(const Shape& array, BlockDims dims, Issuer issuer = Issuer::call,
                        BlockShape block = {}, ElementType type = f32) {
  block.dims = std::move(dims);
  return rules(check_block(find_chip("v5p"), "logits", array, type, block, issuer));
}

TEST(TileRules, MessagesNameEverything) {
  const auto found = check_block(find_chip("v5p"), "logits", {64, 512}, bf16,
                                 {.dims = BlockDims{squeezed(), 100}});
  ASSERT_EQ(rules(found), "R2 R2");
  EXPECT_EQ(found[0].buffer, "logits");
  for (const char* part : {"'logits'", "[squeezed, 100]", "[64, 512]", "bf16", "v5p", "128", "512"})
    EXPECT_NE(found[0].message.find(part), std::string::npos) << part;
  EXPECT_THROW(require(found), TileError);
  EXPECT_NO_THROW(require({}));
}

TEST(TileRules, PipelinesMoveWholeTiles) {
  const Issuer pipeline = Issuer::emit_pipeline;
  EXPECT_EQ(block_rules({64, 100}, {8, 100}), "");
  EXPECT_EQ(block_rules({64, 100}, {8, 100}, pipeline), "R5");
  EXPECT_EQ(block_rules({64, 100}, {64, 100}, pipeline, {.zero_index = true}), "");
  EXPECT_EQ(block_rules({4, 512}, {4, 128}, pipeline), "");
  EXPECT_EQ(block_rules({64, 512}, {4, 128}, pipeline), "R5");
  EXPECT_EQ(block_rules({512}, {64}, pipeline), "R5");
  EXPECT_EQ(block_rules({6, 64, 256}, {squeezed(), 8, 128}, pipeline), "");
  EXPECT_EQ(block_rules({64, 512}, {8, 128}, pipeline, {.space = MemorySpace::hbm}), "");
  EXPECT_EQ(block_rules({64, 512}, {8, 128}, Issuer::call, {.space = MemorySpace::any}), "R4");
}

TEST(TileRules, Dimensions) {
  const Issuer pipeline = Issuer::emit_pipeline;
  EXPECT_EQ(block_rules({64, 512}, {element(8), element(128)}), "");
  EXPECT_EQ(block_rules({3, 64, 512}, {squeezed(), element(8), element(128)}), "");
  EXPECT_EQ(block_rules({64, 512}, {element(8), 128}), "R15");
  EXPECT_EQ(block_rules({64, 512}, {element(8, -8), element(128)}), "R15");
  EXPECT_EQ(block_rules({64, 512}, {bounded_slice(8), 128}), "R16");
  EXPECT_EQ(block_rules({64, 512}, {bounded_slice(8), 128}, pipeline), "");
  EXPECT_EQ(block_rules({64, 512}, {0, 128}), "R1");
  EXPECT_EQ(block_rules({}, {}), "R1");
  EXPECT_EQ(block_rules({}, {}, Issuer::call, {.space = MemorySpace::smem, .zero_index = true}),
            "");
  EXPECT_EQ(block_rules({5}, {3}, Issuer::call, {.space = MemorySpace::semaphore}), "");
  EXPECT_EQ(block_rules({64, 512}, {8, 128}, Issuer::call, {}, i64), "R17");
  EXPECT_EQ(block_rules({64, 512}, {64, 512}, Issuer::call,
                        {.space = MemorySpace::hbm, .zero_index = true}, i64),
            "");
}

TEST(TileRules, BufferCounts) {
  const auto with = [](int count, bool lookahead, bool output, Issuer issuer) {
    return block_rules({64, 512}, {8, 128}, issuer,
                       {.buffer_count = count, .lookahead = lookahead, .is_output = output});
  };
  EXPECT_EQ(with(1, false, false, Issuer::call), "");
  EXPECT_EQ(with(3, false, false, Issuer::call), "R14");
  EXPECT_EQ(with(2, true, false, Issuer::call), "R14");
  EXPECT_EQ(with(4, true, false, Issuer::emit_pipeline), "");
  EXPECT_EQ(with(3, false, true, Issuer::emit_pipeline), "R14");
  EXPECT_EQ(with(0, false, false, Issuer::emit_pipeline), "R14");
}

TEST(TileRules, DmaSlices) {
  const Chip& chip = find_chip("v6e");
  const auto slice = [&](ElementType type, Slice rows, Slice columns) {
    return rules(check_dma_slice(chip, "x", {64, 512}, type, {rows, columns}));
  };
  EXPECT_EQ(slice(f32, {8, 8}, {128, 128}), "");
  EXPECT_EQ(slice(f32, {3, 8}, {0, 128}), "R6");
  EXPECT_EQ(slice(f32, {8, 8}, {64, 128}), "R6");
  EXPECT_EQ(slice(f32, {8, 8}, {128, 100}), "R6");
  EXPECT_EQ(slice(bf16, {8, 8}, {0, 512}), "R6");  // 32 bytes are 16 rows of bf16
  EXPECT_EQ(slice(bf16, {16, 16}, {0, 512}), "");
  EXPECT_EQ(slice(i8, {16, 16}, {0, 512}), "R6");  // and 32 of int8
  EXPECT_EQ(slice(i8, {32, 32}, {0, 512}), "");
  EXPECT_EQ(slice(f32, {0, 64}, {0, 512}), "");
  EXPECT_EQ(slice(f32, {-8, 8}, {0, 128}), "R18");
  EXPECT_EQ(slice(f32, {60, 8}, {0, 128}), "R18");
  EXPECT_EQ(slice(f32, {INT64_MAX, 8}, {0, 128}), "R18");
  EXPECT_EQ(slice(i64, {0, 8}, {0, 128}), "R17");
  EXPECT_EQ(rules(check_dma_slice(chip, "x", {4, 7, 9}, f32, {{3, 1}, {0, 7}, {0, 9}})), "");
  EXPECT_EQ(rules(check_dma_slice(chip, "x", {4096}, f32, {{128, 256}})), "");
  EXPECT_EQ(rules(check_dma_slice(chip, "x", {4096}, bf16, {{128, 256}})), "R6");
}

TEST(TileRules, DeclaredVmem) {
  // JAX's own golden: block * 4 * (2 + nx + ny) for z = x + y with nx and ny input buffers.
  Chip chip = find_chip("v5p");
  for (int nx : {1, 2, 4}) {
    for (int ny : {1, 3}) {
      const VmemUse use = vmem_use(
          chip,
          {{"x", {512, 512}, f32, nx}, {"y", {512, 512}, f32, ny}, {"z", {512, 512}, f32, 2}});
      EXPECT_EQ(use.declared, 512 * 512 * 4 * (2 + nx + ny));
      EXPECT_EQ(use.entries[0].bytes, 512 * 512 * 4 * nx);
    }
  }
  EXPECT_EQ(vmem_use(chip, {{"v", {100}, f32, 2}}).declared, 256 * 4);  // slots end to end
  chip.scoped_vmem_bytes = 4096;
  EXPECT_EQ(rules(check_vmem(vmem_use(chip, {{"x", {8, 128}, f32, 1}}))), "");
  const auto over =
      check_vmem(vmem_use(chip, {{"small", {100}, f32, 1}, {"big", {9, 128}, f32, 1}}));
  ASSERT_EQ(rules(over), "R13");
  EXPECT_EQ(over[0].kind, ErrorKind::vmem);
  EXPECT_EQ(over[0].buffer, "big");
  EXPECT_NE(over[0].message.find("8704 bytes, the scoped limit is 4096: big 8192, small 512;"),
            std::string::npos)
      << over[0].message;
}

// MiB of the schedules at published block sizes, bf16: declared, and with temporaries.
TEST(TileRules, VmemOfTheLoss) {
  const struct {
    BlockSizes blocks;
    double declared[2], temporaries[2];
  } rows[] = {{{1024, 512, 2048}, {14, 20}, {38, 42}},
              {{1024, 512, 1024}, {8, 12}, {20, 24}},
              {{1024, 256, 512}, {3.5, 5}, {9.5, 10.5}},
              {{1024, 1024, 768}, {10, 17}, {19, 30}},
              {{1024, 128, 256}, {1.625, 2.25}, {4.625, 4.875}}};
  for (const auto& row : rows) {
    for (int i : {0, 1}) {
      const Pass pass = i ? Pass::backward : Pass::forward;
      const double vectors = 24.0 * static_cast<double>(row.blocks.b_block_size);
      const auto use =
          vmem_use(find_chip("v5p"), tpu_tile::published_allocations(row.blocks, pass, bf16, bf16));
      EXPECT_EQ(static_cast<double>(use.declared), row.declared[i] * mib + vectors);
      EXPECT_EQ(static_cast<double>(tpu_tile::vmem_with_temporaries(row.blocks, pass, bf16, bf16)),
                row.temporaries[i] * mib + vectors);
    }
  }
  // h counts as the next power of two, and each operand by its own type.
  EXPECT_EQ(tpu_tile::vmem_with_temporaries({128, 384, 128}, Pass::forward, f32, bf16),
            128 * 512 * 8 + 24 * 128 + 512 * 128 * 4 + 16 * 128 * 128);
}

TEST(TileRules, BlocksOfTheLoss) {
  const auto check = [](const char* chip, BlockSizes blocks, tpu_tile::ProblemShape shape,
                        Pass pass = Pass::forward, BlockRules block_rules = BlockRules::marin) {
    return rules(tpu_tile::check_blocks(find_chip(chip), blocks, shape, pass, block_rules));
  };
  const tpu_tile::ProblemShape shape{2048, 1024, 50257, bf16, bf16};
  const tpu_tile::ProblemShape labels{2048, 512, 4096, bf16, bf16};
  EXPECT_EQ(check("v5p", {512, 512, 2048}, labels), "R9");
  EXPECT_EQ(check("v6e", {512, 512, 2048}, labels), "");
  EXPECT_EQ(check("v5p", {512, 512, 2048}, {512, 512, 4096, bf16, bf16}), "");
  for (const char* chip : {"v4", "v5e", "v7"})
    EXPECT_EQ(check(chip, {512, 512, 512}, labels), "R9") << chip;
  EXPECT_EQ(check("v5p", {1024, 512, 2048}, shape), "");  // V may be ragged
  EXPECT_EQ(check("v5p", {1024, 512, 2048}, shape, Pass::backward), "");
  EXPECT_EQ(check("v6e", {100, 512, 2048}, {200, 512, 4096}), "R7");
  EXPECT_EQ(check("v6e", {128, 100, 100}, {128, 100, 100}), "R7 R7");
  EXPECT_EQ(check("v6e", {0, 512, 2048}, shape), "R7 R8");
  EXPECT_EQ(check("v6e", {1024, 512, 2048}, {1000, 1000, 4096}), "R8 R8");
  EXPECT_EQ(check("v5p", {8192, 128, 2048}, {8192, 128, 4096}), "R13");  // exactly 64 MiB of logits
  EXPECT_EQ(check("v5p", {8192, 128, 2176}, {8192, 128, 4096}), "R10");
  // Backward at the defaults takes 20 MiB: v4's cores have 16.
  EXPECT_EQ(check("v4", {1024, 512, 2048}, shape, Pass::forward), "");
  EXPECT_EQ(check("v4", {1024, 512, 2048}, shape, Pass::backward), "R13");
  EXPECT_EQ(check("v6e", {512, 512, 2048}, labels, Pass::forward, BlockRules::tokamax), "R11");
  EXPECT_EQ(check("v4", {1024, 128, 256}, {1024, 128, 256}, Pass::forward, BlockRules::tokamax),
            "R11");
  EXPECT_THROW(check("v5p", {}, shape, Pass::value_and_grad), TileError);
}

}  // namespace
}  // namespace tessera::tile
