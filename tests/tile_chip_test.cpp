// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tessera/tile/chip.hpp"
#include "tessera/tile/error.hpp"
#include "tests/support/expect_error.hpp"

namespace tessera::tile {
namespace {

constexpr std::int64_t kib = 1024;

TEST(TileChip, EveryNameLeadsToItsChip) {
  ASSERT_EQ(chips().size(), 6u);
  const std::pair<const char*, const char*> names[] = {
      {"v3", "v3"},           {"TPU v3", "v3"},   {"v4", "v4"},      {"tpu_v4", "v4"},
      {"TPU v5 lite", "v5e"}, {"TPU v5e", "v5e"}, {"TPU v5", "v5p"}, {"TPU v5p", "v5p"},
      {"TPU v6 lite", "v6e"}, {"V6E", "v6e"},     {"TPU7x", "v7"},   {"TPU7", "v7"},
  };
  for (const auto& [name, chip] : names) EXPECT_EQ(find_chip(name).name, chip) << name;
}

TEST(TileChip, UnknownNameNamesTheKnownOnes) {
  // v5 is ambiguous. Error is the type that users of the library catch.
  tessera::test::expect_error(ErrorCode::invalid_argument, {"v3, v4, v5e, v5p, v6e, v7"},
                              [] { find_chip("v5"); });
}

TEST(TileChip, FiguresOfOneCore) {
  const Chip& v5p = find_chip("v5p");
  EXPECT_EQ(v5p.vmem_bytes, 64 << 20);
  EXPECT_DOUBLE_EQ(core_peak(v5p, ElementType::bf16), 2.295e14);
  EXPECT_DOUBLE_EQ(core_peak(v5p, ElementType::i8), 4.59e14);
  EXPECT_DOUBLE_EQ(core_peak(v5p, ElementType::f32, F32Passes::six), 2.295e14 / 6);
  EXPECT_EQ(core_peak(v5p, ElementType::i32), 0);
  EXPECT_EQ(core_peak(find_chip("v7"), ElementType::i8), 0);
  EXPECT_DOUBLE_EQ(core_peak(find_chip("v7"), ElementType::f8e4m3fn), 2.3e15);
  EXPECT_EQ(find_chip("v3").smem_bytes, 16 * kib);
}

// Milliseconds of a forward pass of 8192 x 4096 x 128256: multiplications, and 1.26e10 bytes (three
// digits, so the tolerance of 1%).
TEST(TileChip, RooflineOfTheLoss) {
  const double flops = 2.0 * 8192 * 4096 * 128256;
  const struct {
    const char* chip;
    double math, memory;
  } rows[] = {{"v5p", 37.5, 10.3}, {"v5e", 43.7, 15.4}, {"v6e", 9.36, 7.70}, {"v7", 7.45, 3.41}};
  for (const auto& row : rows) {
    const Chip& chip = find_chip(row.chip);
    EXPECT_NEAR(1e3 * flops / core_peak(chip, ElementType::bf16), row.math, 0.005 * row.math);
    EXPECT_NEAR(1e3 * 1.26e10 / (chip.hbm_bandwidth / chip.cores), row.memory, 0.01 * row.memory);
  }
}

TEST(TileChip, ImpliedClockOnlyBeforeGenerationSix) {
  const std::pair<const char*, double> clocks[] = {
      {"v3", 1.07e9}, {"v4", 1.05e9}, {"v5e", 1.50e9}, {"v5p", 1.75e9}};
  for (const auto& [name, hertz] : clocks)
    EXPECT_NEAR(find_chip(name).implied_clock().value_or(0), hertz, 0.005 * hertz) << name;
  EXPECT_FALSE(find_chip("v6e").implied_clock());
  EXPECT_FALSE(find_chip("v7").implied_clock());
}

TEST(TileChip, ScopedLimits) {
  const std::pair<const char*, std::int64_t> limits[] = {{"v4", 16384 * kib},
                                                         {"v5e", 50000 * kib},
                                                         {"v5p", 50000 * kib},
                                                         {"v6e", 98304 * kib},
                                                         {"v7", 65536 * kib}};
  for (const auto& [name, bytes] : limits) {
    EXPECT_EQ(find_chip(name).scoped_vmem_bytes, bytes) << name;
    EXPECT_LE(find_chip(name).scoped_vmem_compiler_bytes, bytes) << name;
    EXPECT_LE(bytes, find_chip(name).vmem_bytes) << name;
  }
}

TEST(TileChip, WhatSetsChipsApart) {
  for (const Chip& chip : chips()) {
    EXPECT_EQ(chip.calibrated, chip.name == "v7");
    EXPECT_EQ(chip.megacore, chip.name == "v4" || chip.name == "v5p");
    EXPECT_EQ(chip.labels_in_tiles_of_1024, chip.name != "v3" && chip.name != "v6e");
    EXPECT_EQ(chip.mxu_side, chip.generation >= 6 ? 256 : 128);
    EXPECT_EQ(chip.sparse_cores.has_value(),
              chip.name == "v5p" || chip.name == "v6e" || chip.name == "v7");
  }
  EXPECT_EQ(find_chip("v6e").sparse_cores->vmem_bytes, 256 * kib);
  EXPECT_EQ(find_chip("v7").sparse_cores->lanes, 16);
}

TEST(TileChip, MatmulTypes) {
  using enum ElementType;
  const struct {
    const char* chip;
    ElementType lhs, rhs;
    bool supported;
  } rows[] = {
      {"v3", f32, f32, true},         {"v3", bf16, bf16, false},   {"v4", bf16, i8, true},
      {"v4", i8, bf16, false},        {"v5e", i8, u8, true},       {"v5e", i8, bf16, false},
      {"v5p", i4, u4, true},          {"v6e", f8e5m2, bf16, true}, {"v6e", f8e4m3fn, bf16, false},
      {"v7", f8e4m3fn, f8e5m2, true}, {"v7", f8e5m2, bf16, false}, {"v7", i8, i8, false},
      {"v7", f32, bf16, true},        {"v5p", f16, f16, false},
  };
  for (const auto& row : rows)
    EXPECT_EQ(is_matmul_supported(find_chip(row.chip), row.lhs, row.rhs), row.supported)
        << row.chip << " " << to_string(row.lhs) << " " << to_string(row.rhs);
}

}  // namespace
}  // namespace tessera::tile
