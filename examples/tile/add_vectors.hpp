// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/call.hpp"
#include "tessera/tile/ops.hpp"

namespace tile_examples {
using namespace tessera::tile;

/// o = x + y in blocks of 1024: pallas_call with one BlockSpec for all.
inline void add_vectors(Machine& machine, const Array<float>& x, const Array<float>& y,
                        const Array<float>& o) {
  const auto blocks = BlockSpec::blocks({1024}, [](auto& g) { return ix(g[0]); });
  call(machine, "add_vectors",
       {.grid = {x.extents()[0] / 1024}, .in = {blocks, blocks}, .out = {blocks}},
       [](auto a, auto b, auto sum) {
         map(
             sum, [](float u, float v) { return u + v; }, a, b);
       })(x, y, o);
}

}  // namespace tile_examples
