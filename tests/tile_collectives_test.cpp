// SPDX-License-Identifier: Apache-2.0
// The collectives of examples/tile give what JAX's interpret mode gives
// (tests/tile_goldens/programs_remote.py).
#include <gtest/gtest.h>

#include "examples/tile/collectives.hpp"
#include "tests/support/tile_golden.hpp"

namespace tessera::tile {
namespace {

using namespace tile_examples;
using namespace test;

class TileCollectives : public testing::TestWithParam<DmaMode> {
 public:
  Machine machine_of(int devices) { return Machine({.devices = devices, .dma = GetParam()}); }
};
INSTANTIATE_TEST_SUITE_P(, TileCollectives, testing::Values(DmaMode::eager, DmaMode::on_wait),
                         name_of_mode);

TEST_P(TileCollectives, Collectives) {
  Machine four = machine_of(4);
  auto x = pattern({4, 8, 128}, 24);
  Tensor<float> o({4, 8, 128});
  right_permute(four, x.per_device(four), o.per_device(four));
  Golden("right_permute").expect("o", o);

  auto y = pattern({4, 8, 128}, 25);
  Tensor<float> gathered({4, 4, 8, 128});
  ring_all_gather(four, y.per_device(four), gathered.per_device(four));
  Golden("ring_all_gather").expect("device_0", gathered.part(0, 4 * 1024, {4, 8, 128}));
  Golden("ring_all_gather").expect("device_3", gathered.part(3 * 4096, 4 * 1024, {4, 8, 128}));

  auto parts = pattern({4, 4, 8, 128}, 26);
  Tensor<float> sums({4, 8, 128});
  reduce_scatter(four, parts.per_device(four), sums.per_device(four));
  Golden("reduce_scatter").expect("o", sums);
}

/// values[d]: what device d has; sizes[d][e]: how much of it goes to e.
Tensor<float> ragged(Machine& machine, const std::vector<std::vector<float>>& values,
                     const std::vector<std::vector<std::int32_t>>& sizes, std::int64_t capacity) {
  const auto count = sizes.size();
  const auto extent = static_cast<std::int64_t>(count);
  std::size_t length = 0;
  for (const auto& own : values) length = std::max(length, own.size());
  Tensor<std::int32_t> tables({extent, 4, extent});
  Tensor<float> x({extent, static_cast<std::int64_t>(length), 8, 128});
  Tensor<float> out({extent, capacity, 8, 128});
  std::vector<std::int32_t> landed(count, 0);
  for (std::size_t d = 0; d < count; ++d) {
    std::int32_t begin = 0;
    for (std::size_t e = 0; e < count; ++e) {
      const std::int32_t column[] = {begin, sizes[d][e], landed[e], sizes[e][d]};
      for (std::size_t row = 0; row < 4; ++row) {
        tables.data[(4 * d + row) * count + e] = column[row];
      }
      begin += sizes[d][e];
      landed[e] += sizes[d][e];
    }
    for (std::size_t i = 0; i < 1024 * values[d].size(); ++i) {
      x.data[1024 * length * d + i] = values[d][i / 1024];
    }
  }
  ragged_all_to_all(machine, tables.per_device(machine), x.per_device(machine),
                    out.per_device(machine));
  Tensor<float> kept({extent, capacity});
  for (std::size_t i = 0; i < kept.data.size(); ++i) kept.data[i] = out.data[1024 * i];
  return kept;
}

TEST_P(TileCollectives, RaggedAllToAll) {
  Machine two = machine_of(2);
  Golden("ragged_all_to_all")
      .expect("two", ragged(two, {{1, 2, 2}, {3, 4, 0}}, {{1, 2}, {1, 1}}, 4));
  Machine four = machine_of(4);
  std::vector<std::vector<std::int32_t>> sizes(4, std::vector<std::int32_t>(4));
  std::vector<std::vector<float>> values(4);
  for (std::size_t d = 0; d < 4; ++d) {
    for (std::size_t e = 0; e < 4; ++e) {
      sizes[d][e] = static_cast<std::int32_t>((3 * d + 2 * e) % 4);
      for (int i = 0; i < sizes[d][e]; ++i)
        values[d].push_back(static_cast<float>(100 * d + values[d].size() + 1));
    }
  }
  Golden("ragged_all_to_all").expect("four", ragged(four, values, sizes, 8));
}

}  // namespace
}  // namespace tessera::tile
