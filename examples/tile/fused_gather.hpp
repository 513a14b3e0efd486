// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/kernel.hpp"
#include "tessera/tile/ops.hpp"

namespace tile_examples {
using namespace tessera::tile;

/// o [B, N] = table [rows, H] at indices [B], times w [H, N]. A SparseCore gathers the next
/// `chunk` rows while the TensorCore multiplies these: two bodies that meet through semaphores,
/// and two places for chunks in HBM. `chunk` divides B.
inline void fused_gather(Machine& machine, const Array<float>& table,
                         const Array<std::int32_t>& indices, const Array<float>& w,
                         const Array<float>& o, std::int64_t chunk) {
  const std::int64_t depth = table.extents()[1];
  const std::int64_t columns = w.extents()[1];
  const std::int64_t count = indices.extents()[0] / chunk;
  const auto chunks = machine.empty_ref<float>("chunks", {2, chunk, depth});

  const auto fetch = [=](auto from, auto which, auto, auto, auto places, auto full, auto empty) {
    run_scoped(
        [&](auto mine, auto rows) {
          for (std::int64_t i = 0; i < count; ++i) {
            sync_copy(which.at(ds(chunk * i, chunk)), mine);
            sync_gather(from, mine, rows);
            // From the third on: not before the TensorCore has what lies there.
            if (i >= 2) semaphore_wait(empty);
            sync_copy(rows, places.at(i % 2));
            semaphore_signal(full, 1, Target{.mesh = 0});
          }
        },
        Vmem<std::int32_t>{{chunk}, "mine"}, Vmem<float>{{chunk, depth}, "rows"});
  };
  const auto multiply = [=](auto, auto, auto weights, auto out, auto places, auto full,
                            auto empty) {
    run_scoped(
        [&](auto factors, auto rows, auto product) {
          sync_copy(weights, factors);
          for (std::int64_t i = 0; i < count; ++i) {
            semaphore_wait(full);
            sync_copy(places.at(i % 2), rows);
            if (i + 2 < count) semaphore_signal(empty, 1, Target{.mesh = 1});
            dot(rows, factors, product);
            sync_copy(product, out.at(ds(chunk * i, chunk)));
          }
        },
        Vmem<float>{{depth, columns}, "factors"}, Vmem<float>{{chunk, depth}, "rows"},
        Vmem<float>{{chunk, columns}, "product"});
  };
  mpmd(machine, "fused_gather",
       std::tuple{part(tensorcore_mesh(machine, 1), multiply),
                  part(vector_subcore_mesh(machine, 1, 1), fetch)},
       RegularSem{"full"}, RegularSem{"empty"})(table, indices, w, o, chunks);
}

}  // namespace tile_examples
