// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/call.hpp"
#include "tessera/tile/ops.hpp"

namespace tile_examples {
using namespace tessera::tile;

/// Row of blocks i of o is row table[i] of x: PrefetchScalarGridSpec. The table is in SMEM before
/// the grid starts, so that index maps can read it.
inline void gather_blocks(Machine& machine, const Array<std::int32_t>& table, const Array<float>& x,
                          const Array<float>& o) {
  call(machine, "gather_blocks",
       {.grid = {table.extents()[0]},
        .in = {BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g.prefetched(0, g[0]), 0); })},
        .out = {BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g[0], 0); })},
        .num_scalar_prefetch = 1},
       [](auto, auto from, auto to) { assign(to, from); })(table, x, o);
}

/// The same with a table of two dimensions: block (i, j) of o is block (rows[i, j], j) of x.
inline void gather_blocks_2d(Machine& machine, const Array<std::int32_t>& rows,
                             const Array<float>& x, const Array<float>& o) {
  call(machine, "gather_blocks_2d",
       {.grid = rows.extents(),
        .in = {BlockSpec::blocks({8, 128},
                                 [](auto& g) { return ix(g.prefetched(0, g[0], g[1]), g[1]); })},
        .out = {BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g[0], g[1]); })},
        .num_scalar_prefetch = 1},
       [](auto, auto from, auto to) { assign(to, from); })(rows, x, o);
}

/// o = W x by those blocks of W that are not zero: block n of `packed` stands in row row[n] and
/// column column[n], rows ascending.
inline void block_sparse_matmul(Machine& machine, const Array<std::int32_t>& row,
                                const Array<std::int32_t>& column, const Array<float>& packed,
                                const Array<float>& x, const Array<float>& o) {
  call(machine, "block_sparse_matmul",
       {.grid = {row.extents()[0]},
        .in = {BlockSpec::blocks({squeezed(), 8, 128}, [](auto& g) { return ix(g[0], 0, 0); }),
               BlockSpec::blocks({128, 128}, [](auto& g) { return ix(g.prefetched(1, g[0]), 0); })},
        .out = {BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g.prefetched(0, g[0]), 0); })},
        .num_scalar_prefetch = 2},
       [](auto rows, auto, auto w, auto values, auto sum) {
         const auto n = program_id(0);
         dot(w, values, sum, {.accumulate = n > 0 && rows.load(n) == rows.load(n - 1)});
       })(row, column, packed, x, o);
}

}  // namespace tile_examples
