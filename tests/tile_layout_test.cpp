// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "tessera/tile/error.hpp"
#include "tessera/tile/layout.hpp"

namespace tessera::tile {
namespace {

using enum ElementType;

TEST(TileLayout, AddressesOfXla) {
  EXPECT_EQ(linear_index_with_tile({2, 3}, {3, 5}, {2, 2}), 17);  // XLA's own example
  EXPECT_EQ(linear_index_with_tile({0, 127}, {16, 256}, {8, 128}), 127);
  EXPECT_EQ(linear_index_with_tile({0, 128}, {16, 256}, {8, 128}), 8 * 128);
  EXPECT_EQ(linear_index_with_tile({1, 8, 0}, {2, 16, 256}, {8, 128}), 16 * 256 + 2 * 8 * 128);
  EXPECT_THROW(linear_index_with_tile({3, 0}, {3, 5}, {2, 2}), TileError);
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t j = 0; j < 7; ++j)
      seen.insert(linear_index_with_tile({i, j}, {5, 7}, {2, 4}));
  EXPECT_EQ(seen.size(), 35u);
  EXPECT_LT(*seen.rbegin(), 6 * 8);
}

TEST(TileLayout, SublaneTiling) {
  for (const char* name : {"v3", "v4", "v5e", "v5p", "v6e"}) {
    EXPECT_EQ(sublane_tiling(find_chip(name), f32), 8);
    EXPECT_EQ(sublane_tiling(find_chip(name), bf16), 8);
    EXPECT_EQ(sublane_tiling(find_chip(name), i8), 32);
    EXPECT_EQ(sublane_tiling(find_chip(name), i4), 64);
  }
  EXPECT_EQ(sublane_tiling(find_chip("v7"), f32), 8);
  EXPECT_EQ(sublane_tiling(find_chip("v7"), bf16), 16);
  EXPECT_EQ(sublane_tiling(find_chip("v7"), i8), 32);
}

TEST(TileLayout, InferTiling) {
  const struct {
    const char* chip;
    Shape shape;
    ElementType type;
    Shape tile;
  } rows[] = {
      {"v5e", {256, 256}, f32, {8, 128}}, {"v5e", {2, 3, 128, 128}, f32, {1, 1, 8, 128}},
      {"v5e", {1, 256}, f32, {1, 128}},   {"v5e", {3, 256}, f32, {4, 128}},
      {"v5e", {1, 256}, bf16, {2, 128}},  {"v5e", {5, 256}, bf16, {8, 128}},
      {"v5e", {1, 256}, i8, {4, 128}},    {"v5e", {256, 256}, i8, {8, 128}},
      {"v3", {1, 256}, f32, {2, 128}},    {"v3", {256, 256}, i8, {8, 128}},
      {"v5e", {100}, f32, {128}},         {"v5e", {100}, bf16, {256}},
      {"v3", {100}, f32, {256}},          {"v7", {5000}, i8, {512}},
      {"v7", {64, 4}, i4, {8, 128}},
  };
  for (const auto& row : rows)
    EXPECT_EQ(infer_tiling(find_chip(row.chip), row.shape, row.type), row.tile)
        << row.chip << " " << to_string(row.type);
  EXPECT_EQ(infer_tiling(find_chip("v7"), {2, 3, 64}, bf16, Tiling::sparse_core),
            (Shape{1, 1, 16}));
}

TEST(TileLayout, PaddedBytes) {
  const Chip& chip = find_chip("v5p");
  EXPECT_EQ(padded_shape(chip, {601, 600}, f32), (Shape{608, 640}));
  EXPECT_EQ(padded_bytes(chip, {601, 600}, f32), 608 * 640 * 4);
  EXPECT_EQ(padded_bytes(chip, {3, 5, 7}, bf16), 3 * 8 * 128 * 2);
  EXPECT_EQ(padded_bytes(chip, {1024}, i32), 4096);
  EXPECT_EQ(padded_bytes(chip, {8, 128}, i4), 512);
}

TEST(TileLayout, NoLayout) {
  const Chip& chip = find_chip("v5p");
  EXPECT_THROW(infer_tiling(chip, {}, f32), TileError);
  try {
    infer_tiling(chip, {8, 128}, i64);
    FAIL();
  } catch (const TileError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::layout);
    EXPECT_EQ(error.rule(), "R17");
  }
}

}  // namespace
}  // namespace tessera::tile
