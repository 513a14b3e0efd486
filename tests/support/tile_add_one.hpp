// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/call.hpp"
#include "tests/support/tile_fixture.hpp"

// A kernel that adds one, for the tests of pipelines.
namespace tessera::tile::test {

/// out = x + 1 through blocks.
struct AddOne {
  std::int64_t rows, columns;
  std::vector<float> x = iota(static_cast<std::size_t>(rows * columns));
  std::vector<float> out = std::vector<float>(x.size(), -1.0f);
  Array<float> in(Machine& machine) const {
    return machine.array<float>("x", View::host(x.data(), DType::f32, {rows, columns}));
  }
  Array<float> result(Machine& machine) {
    return machine.array<float>("out", MutableView::host(out.data(), DType::f32, {rows, columns}));
  }
  static void body(const Ref<float>& from, const Ref<float>& to) {
    for (std::int64_t i = 0; i < from.extent(0); ++i) {
      for (std::int64_t j = 0; j < from.extent(1); ++j) to.store(from.load(i, j) + 1, i, j);
    }
  }
  void check() const {
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], x[i] + 1) << i;
  }
};

inline BlockIndex by_row_and_column(const GridPoint& g) { return ix(g[0], g[1]); }

}  // namespace tessera::tile::test
