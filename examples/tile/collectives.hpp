// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/tile/kernel.hpp"
#include "tessera/tile/ops.hpp"

// Arrays are one per device.
namespace tile_examples {
using namespace tessera::tile;

inline Target ring(int step) {
  return {(device_index() + step + num_devices()) % num_devices(), 0};
}

/// Every device's x goes to its right neighbour's o.
inline void right_permute(Machine& machine, const std::vector<Array<float>>& x,
                          const std::vector<Array<float>>& o) {
  kernel(
      machine, "right_permute", tensorcore_mesh(machine, 1),
      [](auto mine, auto out, auto send, auto receive) {
        barrier();
        auto copy = make_async_remote_copy(mine, out, send, receive, ring(1));
        copy.start();
        copy.wait();
      },
      DmaSem{"send"}, DmaSem{"receive"})(x, o);
}

/// Every device gets the x of all, in o [devices, 8, 128]: what came in one step goes on in the
/// next.
inline void ring_all_gather(Machine& machine, const std::vector<Array<float>>& x,
                            const std::vector<Array<float>>& o) {
  kernel(
      machine, "ring_all_gather", tensorcore_mesh(machine, 1),
      [](auto mine, auto all_parts, auto send, auto receive) {
        sync_copy(mine, all_parts.at(device_index()));
        barrier();
        for (int step = 0; step < num_devices() - 1; ++step) {
          const auto part = all_parts.at(ring(-step).device);
          auto copy = make_async_remote_copy(part, part, send, receive, ring(1));
          copy.start();
          copy.wait();
        }
      },
      DmaSem{"send"}, DmaSem{"receive"})(x, o);
}

/// Device d ends with the sum of all devices' part d; x is [devices, 8, 128]. Partial sums travel
/// to the right; `room` says that the neighbour's buffer has been read.
inline void reduce_scatter(Machine& machine, const std::vector<Array<float>>& x,
                           const std::vector<Array<float>>& o) {
  const Shape tile = {8, 128};
  kernel(
      machine, "reduce_scatter", tensorcore_mesh(machine, 1),
      [](auto parts, auto out, auto send, auto receive, auto room, auto buffer, auto mine,
         auto total) {
        sync_copy(parts.at(ring(-1).device), total);
        barrier();
        const int steps = num_devices() - 1;
        for (int step = 0; step < steps; ++step) {
          if (step > 0) semaphore_wait(room);
          auto copy = make_async_remote_copy(total, buffer, send, receive, ring(1));
          copy.start();
          sync_copy(parts.at(ring(-2 - step + num_devices()).device), mine);
          copy.wait();
          map(
              total, [](float a, float b) { return a + b; }, mine, buffer);
          if (step < steps - 1) semaphore_signal(room, 1, ring(-1));
        }
        sync_copy(total, out);
      },
      DmaSem{"send"}, DmaSem{"receive"}, RegularSem{"room"}, Vmem<float>{tile, "buffer"},
      Vmem<float>{tile, "mine"}, Vmem<float>{tile, "total"})(x, o);
}

/// jax.lax.ragged_all_to_all: device d's table [4, devices] has, per device e, where in x the
/// elements for e begin, how many they are, where in e's o they land, and how many come from e. An
/// element is a tile; sizes may be 0.
inline void ragged_all_to_all(Machine& machine, const std::vector<Array<std::int32_t>>& table,
                              const std::vector<Array<float>>& x,
                              const std::vector<Array<float>>& o) {
  kernel(
      machine, "ragged_all_to_all", tensorcore_mesh(machine, 1),
      [](auto table_ref, auto from, auto to, auto numbers, auto send, auto receive) {
        sync_copy(table_ref, numbers);
        barrier();
        const auto wait_for = [&](int row, int device, auto wait) {
          if (const auto size = numbers.load(row, device); size > 0) {
            const auto part = to.at(ds(0, size));
            auto copy = make_async_remote_copy(part, part, send, receive, Target{device, 0});
            (copy.*wait)();
          }
        };
        for (int e = 0; e < num_devices(); ++e) {
          const auto size = numbers.load(1, e);
          if (size == 0) continue;
          make_async_remote_copy(from.at(ds(numbers.load(0, e), size)),
                                 to.at(ds(numbers.load(2, e), size)), send, receive, Target{e, 0})
              .start();
        }
        for (int e = 0; e < num_devices(); ++e) {
          wait_for(1, e, &Copy::wait_send);
          wait_for(3, e, &Copy::wait_recv);
        }
      },
      Smem<std::int32_t>{table[0].extents(), "numbers"}, DmaSem{"send"},
      DmaSem{"receive"})(table, x, o);
}

}  // namespace tile_examples
