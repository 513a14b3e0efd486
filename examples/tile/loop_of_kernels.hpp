// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/ops.hpp"
#include "tessera/tile/pipeline.hpp"

namespace tile_examples {
using namespace tessera::tile;

/// x += y, `times` times: a loop over a kernel that takes refs. They are used in place: the loop
/// allocates nothing in HBM and copies nothing but the blocks.
inline void loop_of_kernels(Machine& machine, const Array<float>& x, const Array<float>& y,
                            int times) {
  auto add =
      kernel(machine, "add_in_place", tensorcore_mesh(machine, 1), [](auto x_ref, auto y_ref) {
        const auto rows = BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g[0], 0); });
        emit_pipeline(
            {.grid = {x_ref.extent(0) / 8}, .in = {rows, rows}, .out = {rows}},
            [](auto addend, auto old, auto sum) {
              map(
                  sum, [](float u, float v) { return u + v; }, addend, old);
            },
            y_ref, x_ref, x_ref);
      });
  for (int i = 0; i < times; ++i) add(x, y);
}

}  // namespace tile_examples
