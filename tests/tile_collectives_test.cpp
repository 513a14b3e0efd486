// SPDX-License-Identifier: Apache-2.0
// The collectives of examples/tile give what JAX's interpret mode gives
// (tests/tile_goldens/programs_remote.py).
#include <gtest/gtest.h>

#include "examples/tile/collectives.hpp"
#include "tests/support/tile_golden.hpp"

namespace tessera::tile {
namespace {

using namespace tile_examples;
using test::Golden;
using test::pattern;
using test::Tensor;

class TileCollectives : public testing::TestWithParam<DmaMode> {
 public:
  Machine machine_of(int devices) { return Machine({.devices = devices, .dma = GetParam()}); }
};
INSTANTIATE_TEST_SUITE_P(, TileCollectives, testing::Values(DmaMode::eager, DmaMode::on_wait),
                         [](const auto& mode) {
                           return mode.param == DmaMode::eager ? "Eager" : "OnWait";
                         });

/// One array per device, cut from one tensor.
std::vector<Array<float>> shards(Machine& machine, Tensor<float>& all, const Shape& extents) {
  std::int64_t size = 1;
  for (const auto extent : extents) size *= extent;
  std::vector<Array<float>> arrays;
  for (int d = 0; d < machine.options().devices; ++d) {
    arrays.push_back(machine.array<float>(
        "x", MutableView::host(all.data.data() + d * size, DType::f32, extents), d));
  }
  return arrays;
}

TEST_P(TileCollectives, Collectives) {
  Machine four = machine_of(4);
  auto x = pattern({4, 8, 128}, 24);
  Tensor<float> o({4, 8, 128});
  right_permute(four, shards(four, x, {8, 128}), shards(four, o, {8, 128}));
  Golden("right_permute").expect("o", o);

  auto y = pattern({4, 8, 128}, 25);
  Tensor<float> gathered({4, 4, 8, 128});
  ring_all_gather(four, shards(four, y, {8, 128}), shards(four, gathered, {4, 8, 128}));
  Golden("ring_all_gather").expect("device_0", gathered.part(0, 4 * 1024, {4, 8, 128}));
  Golden("ring_all_gather").expect("device_3", gathered.part(3 * 4096, 4 * 1024, {4, 8, 128}));

  auto parts = pattern({4, 4, 8, 128}, 26);
  Tensor<float> sums({4, 8, 128});
  reduce_scatter(four, shards(four, parts, {4, 8, 128}), shards(four, sums, {8, 128}));
  Golden("reduce_scatter").expect("o", sums);
}

/// values[d]: what device d has; sizes[d][e]: how much of it goes to e.
Tensor<float> ragged(Machine& machine, const std::vector<std::vector<float>>& values,
                     const std::vector<std::vector<std::int32_t>>& sizes, std::int64_t capacity) {
  const auto count = sizes.size();
  std::vector<std::vector<std::int32_t>> tables(count, std::vector<std::int32_t>(4 * count));
  std::vector<std::vector<float>> x(count);
  std::vector<std::int32_t> landed(count, 0);
  Tensor<float> out({static_cast<std::int64_t>(count), capacity, 8, 128});
  out.data.assign(out.data.size(), 0.0f);
  std::vector<Array<std::int32_t>> table_arrays;
  std::vector<Array<float>> x_arrays;
  const auto extent = static_cast<std::int64_t>(count);
  std::size_t length = 0;
  for (const auto& own : values) length = std::max(length, own.size());
  for (std::size_t d = 0; d < count; ++d) {
    std::int32_t begin = 0;
    for (std::size_t e = 0; e < count; ++e) {
      tables[d][e] = begin;
      tables[d][count + e] = sizes[d][e];
      tables[d][2 * count + e] = landed[e];
      tables[d][3 * count + e] = sizes[e][d];
      begin += sizes[d][e];
      landed[e] += sizes[d][e];
    }
    for (const float value : values[d]) x[d].insert(x[d].end(), 1024, value);
    x[d].resize(1024 * length);
    const int device = static_cast<int>(d);
    table_arrays.push_back(machine.array<std::int32_t>(
        "table", View::host(tables[d].data(), DType::i32, {4, extent}), device));
    x_arrays.push_back(machine.array<float>(
        "x", View::host(x[d].data(), DType::f32, {static_cast<std::int64_t>(length), 8, 128}),
        device));
  }
  ragged_all_to_all(machine, table_arrays, x_arrays, shards(machine, out, {capacity, 8, 128}));
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
