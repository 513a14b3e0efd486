// SPDX-License-Identifier: Apache-2.0
// Copies and signals between devices: collectives as Pallas' documents have them.
#include <gtest/gtest.h>

#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using namespace test;

TEST(TileRemote, RingAllGather) {
  constexpr int count = 4;
  for_each_order({.devices = count}, [](Machine& machine) {
    Tensor<float> shards({count, 8, 128}, iota(count * 8 * 128));
    Tensor<float> gathered({count, count * 8, 128});
    const auto x = shards.per_device(machine), out = gathered.per_device(machine, "out");
    const auto run = [&](bool waits) {
      on_core(machine, "all_gather", DmaSem{"send"}, DmaSem{"receive"},
              [&](auto mine, auto all_shards, auto send, auto receive) {
                const int right = (device_index() + 1) % count;
                const auto rows = [&](int device) { return all_shards.at(ds(8 * device, 8)); };
                sync_copy(mine, rows(device_index()));
                barrier();
                for (int step = 0; step < count - 1; ++step) {
                  const int shard = (device_index() - step + count) % count;
                  auto copy = make_async_remote_copy(rows(shard), rows(shard), send, receive,
                                                     Target{right, 0});
                  copy.start();
                  copy.wait_send();
                  // What comes is the shard that goes on in the next step.
                  if (waits || step == 0) copy.wait_recv();
                }
                if (!waits) {
                  for (int step = 1; step < count - 1; ++step) {
                    make_async_remote_copy(rows(0), rows(0), send, receive, Target{right, 0})
                        .wait_recv();
                  }
                }
              })(x, out);
    };
    run(true);
    for (std::size_t i = 0; i < gathered.data.size(); ++i)
      EXPECT_EQ(gathered.data[i], shards.data[i % shards.data.size()]);
    EXPECT_EQ(machine.report().bytes_remote, count * (count - 1) * 4096);
    expect_error(ErrorKind::race, {"'out'", "device"}, [&] { run(false); });
  });
}

// The example of jax.lax.ragged_all_to_all's documentation, row by row.
TEST(TileRemote, RaggedAllToAll) {
  const std::int32_t operand[] = {1, 2, 2, 3, 4, 0};
  const int input_offsets[2][2] = {{0, 1}, {0, 1}};
  const int send_sizes[2][2] = {{1, 2}, {1, 1}};
  const int output_offsets[2][2] = {{0, 0}, {1, 2}};
  const int receive_sizes[2][2] = {{1, 1}, {2, 1}};
  const std::int32_t expected[] = {1, 3, 0, 0, 2, 2, 4, 0};
  for_each_order({.devices = 2}, [&](Machine& machine) {
    // A row of the example is a tile here.
    Tensor<std::int32_t> in({2, 24, 128}), got({2, 32, 128});
    for (std::size_t i = 0; i < in.data.size(); ++i) in.data[i] = operand[i / 1024];
    on_core(machine, "ragged_all_to_all", DmaSem{"send"}, DmaSem{"receive"},
            [&](auto from, auto to, auto send, auto receive) {
              const int me = device_index();
              for (int peer = 0; peer < 2; ++peer) {
                for (int row = 0; row < send_sizes[me][peer]; ++row) {
                  auto copy =
                      make_async_remote_copy(from.at(ds(8 * (input_offsets[me][peer] + row), 8)),
                                             to.at(ds(8 * (output_offsets[me][peer] + row), 8)),
                                             send, receive, Target{peer, 0});
                  copy.start();
                  copy.wait_send();
                }
              }
              for (int peer = 0; peer < 2; ++peer) {
                for (int row = 0; row < receive_sizes[me][peer]; ++row) {
                  make_async_remote_copy(from.at(ds(0, 8)), to.at(ds(0, 8)), send, receive,
                                         Target{me, 0})
                      .wait_recv();
                }
              }
            })(in.per_device(machine), got.per_device(machine));
    for (std::size_t i = 0; i < got.data.size(); ++i) EXPECT_EQ(got.data[i], expected[i / 1024]);
  });
}

TEST(TileRemote, BarriersOrder) {
  for_each_order([](Machine& machine) {
    auto box = machine.empty_ref<float>("box", {8, 128});
    const auto run = [&](int barriers) {
      launch(machine, "hand_over", tensorcore_mesh(machine), Vmem<float>{{8, 128}, "tile"},
             [&](auto shared, auto tile) {
               if (core_index() == 0) {
                 tile.store(1.0f, 0, 0);
                 sync_copy(tile, shared);
               }
               for (int i = 0; i < barriers; ++i) barrier();
               if (core_index() == 1) sync_copy(shared, tile);
             })(box);
    };
    run(1);
    run(2);
    expect_error(ErrorKind::race, {"'box'"}, [&] { run(0); });
  });
}

TEST(TileRemote, TargetsThatAreNone) {
  Machine machine({.devices = 2});
  auto here = machine.empty_ref<float>("here", {8, 128});
  const auto send = [&](Target target, bool scoped) {
    on_core(machine, "send", Vmem<float>{{8, 128}, "tile"}, DmaSem{"sent"}, DmaSem{"received"},
            [&](auto tile, auto sent, auto received) {
              if (device_index() != 0) return;
              if (!scoped) {
                make_async_remote_copy(tile, tile, sent, received, target).start();
                return;
              }
              run_scoped(
                  [&](auto own) { make_async_remote_copy(tile, own, sent, received, target); },
                  Vmem<float>{{8, 128}, "own"});
            })();
  };
  expect_error(ErrorKind::bounds, {"device 2", "2 devices"}, [&] { send({2, 0}, false); });
  expect_error(ErrorKind::bounds, {"core 1"}, [&] { send({0, 1}, false); });
  expect_error(ErrorKind::usage, {"'own'"}, [&] { send({1, 0}, true); });
  expect_error(ErrorKind::unfinished_dma, {"'tile'"}, [&] { send({1, 0}, false); });
  // An array of one device is no argument on two.
  expect_error(ErrorKind::usage, {"'here'", "device 1"},
               [&] { on_core(machine, "look", [](auto) {})(here); });
}

}  // namespace
}  // namespace tessera::tile
