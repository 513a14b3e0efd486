// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/kernel.hpp"
#include "tessera/tile/ops.hpp"

namespace tile_examples {
using namespace tessera::tile;

/// o = x + y: a pl.kernel that takes refs of arrays in HBM and copies them itself.
inline void add_refs(Machine& machine, const Array<float>& x, const Array<float>& y,
                     const Array<float>& o) {
  kernel(
      machine, "add_refs", tensorcore_mesh(machine, 1),
      [](auto x_ref, auto y_ref, auto o_ref, auto a, auto b) {
        sync_copy(x_ref, a);
        sync_copy(y_ref, b);
        map(
            a, [](float u, float v) { return u + v; }, a, b);
        sync_copy(a, o_ref);
      },
      Vmem<float>{x.extents(), "a"}, Vmem<float>{x.extents(), "b"})(x, y, o);
}

}  // namespace tile_examples
