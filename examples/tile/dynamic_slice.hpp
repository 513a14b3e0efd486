// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/kernel.hpp"
#include "tessera/tile/ops.hpp"

namespace tile_examples {
using namespace tessera::tile;

/// Pairs (row of tiles, amount) in HBM come to SMEM and steer the kernel while the amount is not
/// zero: that row of x plus the amount is the next row of o.
inline void dynamic_slice(Machine& machine, const Array<std::int32_t>& table, const Array<float>& x,
                          const Array<float>& o) {
  kernel(
      machine, "dynamic_slice", tensorcore_mesh(machine, 1),
      [](auto table_ref, auto x_ref, auto o_ref, auto steps, auto tile) {
        sync_copy(table_ref, steps);
        for (int i = 0; steps.load(i, 1) != 0; ++i) {
          sync_copy(x_ref.at(ds(8 * steps.load(i, 0), 8)), tile);
          const auto amount = static_cast<float>(steps.load(i, 1));
          map(
              tile, [](float v, float a) { return v + a; }, tile, amount);
          sync_copy(tile, o_ref.at(ds(8 * i, 8)));
        }
      },
      Smem<std::int32_t>{table.extents(), "steps"}, Vmem<float>{{8, 128}, "tile"})(table, x, o);
}

}  // namespace tile_examples
