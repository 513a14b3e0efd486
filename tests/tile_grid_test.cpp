// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tessera/tile/grid.hpp"

namespace tessera::tile {
namespace {

constexpr Semantics P = Semantics::parallel;
constexpr Semantics A = Semantics::arbitrary;

// Grids of JAX's test_can_partition_grid and a few more, shared out by hand as its _partition_grid
// is written.
TEST(TileGrid, PartitionAsInJax) {
  const struct {
    Shape grid;
    std::vector<Semantics> semantics;
    CoreGrid core[2];
  } rows[] = {
      {{4}, {P}, {{{2}, {0}}, {{2}, {2}}}},
      {{5}, {P}, {{{3}, {0}}, {{2}, {3}}}},
      {{8, 3}, {P, A}, {{{4, 3}, {0, 0}}, {{4, 3}, {4, 0}}}},
      {{5, 3}, {P, A}, {{{3, 3}, {0, 0}}, {{2, 3}, {3, 0}}}},
      {{2, 7}, {A, P}, {{{2, 4}, {0, 0}}, {{2, 3}, {0, 4}}}},
      {{8, 8}, {P, P}, {{{4, 8}, {0, 0}}, {{4, 8}, {4, 0}}}},
      {{5, 7}, {P, P}, {{{5, 4}, {0, 0}}, {{5, 3}, {0, 4}}}},
      {{5, 8}, {P, P}, {{{5, 4}, {0, 0}}, {{5, 4}, {0, 4}}}},
      {{1, 1}, {P, P}, {{{1, 1}, {0, 0}}, {{0, 1}, {1, 0}}}},
      {{4, 5}, {A, P}, {{{4, 3}, {0, 0}}, {{4, 2}, {0, 3}}}},
  };
  for (const auto& row : rows) {
    for (int core : {0, 1})
      EXPECT_EQ(partition_grid(row.grid, row.semantics, 2, core), row.core[core])
          << row.grid[0] << " core " << core;
    EXPECT_EQ(partition_grid(row.grid, row.semantics, 1, 0).extents, row.grid);
  }
  // Two of the four cores take the rest.
  EXPECT_EQ(partition_grid({10}, {P}, 4, 1), (CoreGrid{{3}, {3}}));
  EXPECT_EQ(partition_grid({10}, {P}, 4, 2), (CoreGrid{{2}, {6}}));
  EXPECT_EQ(partition_grid({10}, {P}, 4, 3), (CoreGrid{{2}, {8}}));
  EXPECT_THROW(partition_grid({4, 4}, {A, A}, 2, 0), TileError);
  EXPECT_THROW(partition_grid({4, 4}, {}, 2, 0), TileError);
  EXPECT_THROW(partition_grid({4, 4}, {P}, 2, 0), TileError);
}

TEST(TileGrid, ParallelDimensionsComeFirst) {
  EXPECT_TRUE(check_semantics("k", {4, 4, 2}, {P, P, A}).empty());
  EXPECT_TRUE(check_semantics("k", {4, 4}, {}).empty());
  EXPECT_TRUE(check_semantics("k", {4, 4}, {A, P}, Issuer::emit_pipeline).empty());
  const auto late = check_semantics("k", {4, 4, 2}, {P, A, P});
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].rule, "R12");
  EXPECT_NE(late[0].message.find("'k'"), std::string::npos);
  EXPECT_NE(late[0].message.find("dimension 2"), std::string::npos);
  EXPECT_FALSE(check_semantics("k", {4, 4}, {P}).empty());
  EXPECT_FALSE(check_semantics("k", {4, 0}, {P, A}).empty());
}

TEST(TileGrid, StepsAreLexicographic) {
  EXPECT_EQ(steps_of({}), 1);
  EXPECT_EQ(steps_of({2, 3, 4}), 24);
  EXPECT_EQ(grid_point({2, 3, 4}, 0), (Shape{0, 0, 0}));
  EXPECT_EQ(grid_point({2, 3, 4}, 5), (Shape{0, 1, 1}));
  EXPECT_EQ(grid_point({2, 3, 4}, 23), (Shape{1, 2, 3}));
}

class DmaSliceTest : public ::testing::Test {
 protected:
  std::vector<DmaSlice> slice(const Shape& array, const BlockDims& block,
                              const std::vector<Slice>& index,
                              ElementType type = ElementType::f32) {
    return dma_slice(find_chip("v5p"), "x", array, type, block, index);
  }
};

TEST_F(DmaSliceTest, EdgeBlocksAreCutToWholeTiles) {
  // JAX's example: 601 x 600 in blocks of 256: 89 rows left, 96 moved; 88 columns left, 128 moved.
  const auto corner = slice({601, 600}, {256, 256}, {{2}, {2}});
  EXPECT_EQ(corner[0], (DmaSlice{512, 96, 89, 0}));
  EXPECT_EQ(corner[1], (DmaSlice{512, 128, 88, 0}));
  const auto inner = slice({601, 600}, {256, 256}, {{1}, {0}});
  EXPECT_EQ(inner[0], (DmaSlice{256, 256, 256, 0}));
  EXPECT_EQ(inner[1], (DmaSlice{0, 256, 256, 0}));
  // All blocks of a column together: the array rounded up to its tiles.
  EXPECT_EQ(slice({600, 600}, {256, 256}, {{2}, {0}})[0].size, 88);
  // As observed in JAX: 203 x 300 in blocks of 128.
  EXPECT_EQ(slice({203, 300}, {128, 128}, {{1}, {2}})[0].size, 80);
  EXPECT_EQ(slice({203, 300}, {128, 128}, {{1}, {2}})[1].size, 128);
}

TEST_F(DmaSliceTest, OtherDimensions) {
  const auto mixed =
      slice({4, 600, 256}, {squeezed(), bounded_slice(64), 256}, {{3}, {100, 20}, {0}});
  EXPECT_EQ(mixed[0], (DmaSlice{3, 1, 1, 0}));
  EXPECT_EQ(mixed[1], (DmaSlice{100, 24, 20, 0}));  // 0.11.1 rounds it although it fits
  const auto padded = slice({64, 256}, {element(16, 8, 8), element(256)}, {{0}, {0}});
  EXPECT_EQ(padded[0], (DmaSlice{0, 8, 8, 8}));
  EXPECT_EQ(slice({64, 256}, {element(16, 8, 8), element(256)}, {{64}, {0}})[0],
            (DmaSlice{56, 8, 8, 0}));
}

TEST_F(DmaSliceTest, Refused) {
  const auto rule = [&](const Shape& array, const BlockDims& block,
                        const std::vector<Slice>& index) -> std::string {
    try {
      slice(array, block, index);
    } catch (const TileError& error) {
      EXPECT_NE(std::string(error.what()).find("'x'"), std::string::npos);
      return error.rule();
    }
    return "";
  };
  EXPECT_EQ(rule({601, 600}, {256, 256}, {{3}, {0}}), "R12");
  EXPECT_EQ(rule({601, 600}, {256, 256}, {{-1}, {0}}), "R12");
  EXPECT_EQ(rule({64, 256}, {element(16), element(256)}, {{-8}, {0}}), "R12");
  EXPECT_EQ(rule({64, 256}, {bounded_slice(16), 256}, {{0, 24}, {0}}), "R16");
  EXPECT_EQ(rule({64, 200}, {8, 150}, {{0}, {1}}), "R5");
  EXPECT_EQ(rule({64, 200}, {8, 128}, {{0}, {1}}), "");
}

}  // namespace
}  // namespace tessera::tile
