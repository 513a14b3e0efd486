// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/call.hpp"
#include "tessera/tile/ops.hpp"

// Windows that are not just blocks.
namespace tile_examples {
using namespace tessera::tile;

/// Blocks of 128 of an array that is no multiple: copies are cut to whole tiles.
inline void twice_with_edges(Machine& machine, const Array<float>& x, const Array<float>& o) {
  const Shape extents = x.extents();
  kernel(machine, "twice_with_edges", tensorcore_mesh(machine, 1), [&](auto from, auto to) {
    const auto blocks = BlockSpec::blocks({128, 128}, [](auto& g) { return ix(g[0], g[1]); });
    emit_pipeline(
        {.grid = {(extents[0] + 127) / 128, (extents[1] + 127) / 128},
         .in = {blocks},
         .out = {blocks}},
        [](auto in, auto out) {
          map(
              out, [](float v) { return 2 * v; }, in);
        },
        from, to);
  })(x, o);
}

/// Slices (start, size) of rows, up to 32 at a time, plus 1; the other rows of o stay.
inline void ragged_rows(Machine& machine, const std::vector<Slice>& slices, const Array<float>& x,
                        const Array<float>& o) {
  kernel(machine, "ragged_rows", tensorcore_mesh(machine, 1), [&](auto from, auto to) {
    const auto rows = BlockSpec::blocks({bounded_slice(32), 128}, [&](auto& g) {
      return ix(slices[static_cast<std::size_t>(g[0])], 0);
    });
    emit_pipeline(
        {.grid = {static_cast<std::int64_t>(slices.size())}, .in = {rows}, .out = {rows}},
        [](auto in, auto out) {
          map(
              out, [](float v) { return v + 1; }, in);
        },
        from, to);
  })(x, o);
}

/// Windows of 16 rows every 8 rows: their first half plus their second.
inline void overlapping_windows(Machine& machine, const Array<float>& x, const Array<float>& o) {
  call(machine, "overlapping_windows",
       {.grid = {o.extents()[0] / 8},
        .in = {BlockSpec::blocks({element(16), element(128)},
                                 [](auto& g) { return ix(8 * g[0], 0); })},
        .out = {BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g[0], 0); })}},
       [](auto window, auto sum) {
         map(
             sum, [](float a, float b) { return a + b; }, window.at(ds(0, 8)), window.at(ds(8, 8)));
       })(x, o);
}

}  // namespace tile_examples
