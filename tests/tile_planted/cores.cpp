// SPDX-License-Identifier: Apache-2.0
#include "tests/tile_planted/programs.hpp"

namespace tessera::tile::test {
namespace {

using enum ErrorKind;

/// A body with x and out of 16 rows, a tile, a semaphore, on two cores.
template <class Body>
auto two_cores(Body body) {
  return [=](const MachineOptions& options) {
    Machine machine(options);
    AddOne problem{16};
    launch(machine, "planted", tensorcore_mesh(machine, 2), Vmem<float>{{8, 128}, "tile"},
           RegularSem{"ready"}, body)(problem.in(machine), problem.result(machine));
  };
}

void cores_share_an_output(Ref<float> x, Ref<float> out, Ref<float> tile, Semaphore) {
  const Slice mine = ds(8 * core_index(), 8);
  sync_copy(x.at(mine), tile);
  sync_copy(tile, out.at(ds(0, 8)));
  sync_copy(tile, out.at(mine));
}

/// Core 0 writes the first tile of out, core 1 copies it to the second.
auto handed_over(int signal, bool wait_before, bool wait_after) {
  return two_cores([=](Ref<float> x, Ref<float> out, Ref<float> tile, Semaphore ready) {
    if (core_index() == 0) {
      sync_copy(x.at(ds(0, 8)), tile);
      sync_copy(tile, out.at(ds(0, 8)));
      if (signal > 0) semaphore_signal(ready, signal, Target{0, 1});
      return;
    }
    if (wait_before) semaphore_wait(ready);
    sync_copy(out.at(ds(0, 8)), tile);
    if (wait_after) semaphore_wait(ready);
    sync_copy(tile, out.at(ds(8, 8)));
  });
}

void each_waits_for_the_other(Ref<float>, Ref<float>, Ref<float>, Semaphore ready) {
  semaphore_wait(ready);
  semaphore_signal(ready, 1, Target{0, 1 - core_index()});
}

/// One array per device, x and `out` of so many rows.
template <class Body, class... Scratch>
auto devices(int count, std::int64_t rows, std::int64_t out_rows, Body body, Scratch... scratch) {
  return [=](MachineOptions options) {
    options.devices = count;
    Machine machine(options);
    Tensor<float> x({count, rows, 128}), out({count, out_rows, 128});
    on_core(machine, "planted", scratch..., body)(x.per_device(machine, "x"),
                                                  out.per_device(machine, "out"));
  };
}

void arrival_not_awaited(Ref<float> x, Ref<float> out, DmaSemaphore send, DmaSemaphore receive) {
  const auto shard = [&](int device) { return out.at(ds(8 * device, 8)); };
  const Target right{(device_index() + 1) % 4, 0};
  sync_copy(x, shard(device_index()));
  barrier();
  std::vector<Copy> copies;
  for (int step = 0; step < 3; ++step) {
    const auto part = shard((device_index() - step + 4) % 4);
    copies.push_back(make_async_remote_copy(part, part, send, receive, right));
    copies.back().start();
    copies.back().wait_send();
  }
  for (Copy& copy : copies) copy.wait_recv();
}

void neighbour_not_ready(Ref<float> x, Ref<float> out, DmaSemaphore send, DmaSemaphore receive,
                         Ref<float> buffer, Ref<float> tile) {
  const Target right{1 - device_index(), 0};
  barrier();
  for (int step = 0; step < 2; ++step) {
    Copy copy = make_async_remote_copy(x.at(ds(8 * step, 8)), buffer, send, receive, right);
    copy.start();
    copy.wait();
    AddOne::body(buffer, tile);
    sync_copy(tile, out.at(ds(8 * step, 8)));
  }
}

}  // namespace

std::vector<Planted> planted_cores() {
  return {
      {"cores_share_an_output", race, "'out'", two_cores(cores_share_an_output)},
      {"waits_too_late", race, "'out'", handed_over(1, false, true)},
      {"dropped_signal", deadlock, "'ready'", handed_over(0, true, false)},
      {"signal_left_over", semaphore, "'ready'", handed_over(2, true, false)},
      {"no_signal_at_all", race, "'out'", handed_over(0, false, false)},
      {"each_waits_for_the_other", deadlock, "'ready'", two_cores(each_waits_for_the_other)},
      {"arrival_not_awaited", race, "'out'",
       devices(4, 8, 32, arrival_not_awaited, DmaSem{"send"}, DmaSem{"receive"})},
      {"neighbour_not_ready", race, "'buffer'",
       devices(2, 16, 16, neighbour_not_ready, DmaSem{"send"}, DmaSem{"receive"},
               Vmem<float>{{8, 128}, "buffer"}, Vmem<float>{{8, 128}, "tile"})},
  };
}

}  // namespace tessera::tile::test
