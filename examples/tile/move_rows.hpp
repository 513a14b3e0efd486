// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "tessera/tile/kernel.hpp"

namespace tile_examples {
using namespace tessera::tile;

/// o[to[i]] = x[from[i]] for rows of x [M, H] and o [N, H], on one subcore of a SparseCore. The
/// rows of a chunk are on their way into one of two places while those of the chunk before are on
/// their way out of the other. `chunk` divides the number of indices; no two of `to` are equal, for
/// nothing orders two copies to the same row.
inline void move_rows(Machine& machine, const Array<float>& x, const Array<std::int32_t>& from,
                      const Array<float>& o, const Array<std::int32_t>& to, std::int64_t chunk) {
  const std::int64_t count = from.extents()[0] / chunk;
  const Vmem<std::int32_t> indices{{chunk}, "indices"};
  const Vmem<float> place{{chunk, x.extents()[1]}, "place"};
  kernel(
      machine, "move_rows", vector_subcore_mesh(machine, 1, 1),
      [=](auto source, auto from_hbm, auto target, auto to_hbm, auto from_0, auto from_1, auto to_0,
          auto to_1, auto rows_0, auto rows_1, auto gathered, auto scattered) {
        const std::array froms{from_0, from_1}, tos{to_0, to_1};
        const std::array rows{rows_0, rows_1};
        const auto gather = [&](std::int64_t i) {
          const auto slot = static_cast<std::size_t>(i % 2);
          sync_copy(from_hbm.at(ds(chunk * i, chunk)), froms[slot]);
          Copy copy = make_async_gather(source, froms[slot], rows[slot], gathered[slot]);
          copy.start();
          return copy;
        };
        std::array<Copy, 2> scatters;
        Copy coming = gather(0);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto slot = static_cast<std::size_t>(i % 2);
          sync_copy(to_hbm.at(ds(chunk * i, chunk)), tos[slot]);
          coming.wait();
          scatters[slot] = make_async_scatter(rows[slot], target, tos[slot], scattered[slot]);
          scatters[slot].start();
          // The other place is free when what it held has left.
          if (i > 0) scatters[1 - slot].wait();
          if (i + 1 < count) coming = gather(i + 1);
        }
        scatters[static_cast<std::size_t>((count - 1) % 2)].wait();
      },
      indices, indices, indices, indices, place, place, DmaSems<2>{"gathered"},
      DmaSems<2>{"scattered"})(x, from, o, to);
}

}  // namespace tile_examples
