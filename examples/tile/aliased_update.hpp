// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/call.hpp"
#include "tessera/tile/ops.hpp"

namespace tile_examples {
using namespace tessera::tile;

/// Every second row of blocks of x becomes 2 x + 1 in place; the others are not touched.
inline void aliased_update(Machine& machine, const Array<float>& x) {
  const auto odd = BlockSpec::blocks({8, 128}, [](auto& g) { return ix(2 * g[0] + 1, 0); });
  call(machine, "aliased_update",
       {.grid = {x.extents()[0] / 16},
        .in = {odd},
        .out = {odd},
        .input_output_aliases = {{.in = 0, .out = 0}}},
       [](auto old, auto updated) {
         map(
             updated, [](float v) { return 2 * v + 1; }, old);
       })(x, x);
}

}  // namespace tile_examples
