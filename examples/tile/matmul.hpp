// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/call.hpp"
#include "tessera/tile/ops.hpp"

namespace tile_examples {
using namespace tessera::tile;

struct MatmulBlocks {
  std::int64_t m = 64, n = 128, k = 128;
};

template <class T>
PipelineSpec matmul_pipeline(const Array<T>& x, const Array<T>& y, const MatmulBlocks& b,
                             int buffers) {
  using enum Semantics;
  return {
      .grid = {x.extents()[0] / b.m, y.extents()[1] / b.n, x.extents()[1] / b.k},
      .in = {BlockSpec::blocks(
                 {b.m, b.k}, [](auto& g) { return ix(g[0], g[2]); }, buffers),
             BlockSpec::blocks(
                 {b.k, b.n}, [](auto& g) { return ix(g[2], g[1]); }, buffers)},
      .out = {BlockSpec::blocks({b.m, b.n}, [](auto& g) { return ix(g[0], g[1]); })},
      .semantics = {parallel, parallel, arbitrary},
  };
}

/// One step: the product of two blocks is added up in `total` and leaves behind the last one.
struct MatmulStep {
  template <class T, class Out, class Sum>
  void operator()(const Ref<T>& x, const Ref<T>& y, const Ref<Out>& o,
                  const Ref<Sum>& total) const {
    dot(x, y, total, {.accumulate = program_id(2) > 0});
    if (program_id(2) == num_programs(2) - 1) assign(o, total);
  }
};

/// o = x y by pallas_call; sums are f32, or i32 of integers.
template <class T, class Out, class Sum = float>
void matmul(Machine& machine, const Array<T>& x, const Array<T>& y, const Array<Out>& o,
            const MatmulBlocks& b = {}) {
  const auto spec = matmul_pipeline(x, y, b, 2);
  call(machine, "matmul",
       {.grid = spec.grid, .in = spec.in, .out = spec.out, .semantics = spec.semantics},
       MatmulStep{}, Vmem<Sum>{{b.m, b.n}, "total"})(x, y, o);
}

/// The same by emit_pipeline in a kernel on one or more cores, which share the grid.
template <class T, class Out>
void matmul_on_cores(Machine& machine, const Array<T>& x, const Array<T>& y, const Array<Out>& o,
                     int cores, int buffers = 2, const MatmulBlocks& b = {}) {
  kernel(
      machine, "matmul", tensorcore_mesh(machine, cores),
      [&](auto x_ref, auto y_ref, auto o_ref, auto total) {
        auto spec = matmul_pipeline(x, y, b, buffers);
        spec.over_cores = cores > 1;
        emit_pipeline(
            spec, [&](auto... blocks) { MatmulStep{}(blocks..., total); }, x_ref, y_ref, o_ref);
      },
      Vmem<float>{{b.m, b.n}, "total"})(x, y, o);
}

}  // namespace tile_examples
