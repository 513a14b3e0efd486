// SPDX-License-Identifier: Apache-2.0
// Copies and signals between devices: collectives as Pallas' documents have them.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using test::expect_error;
using test::for_each_order;

std::string numbered(const char* name, int device) {
  return std::string(name).append(std::to_string(device));
}

MachineOptions devices(MachineOptions options, int count) {
  options.devices = count;
  return options;
}

TEST(TileRemote, RingAllGather) {
  constexpr int count = 4;
  for_each_order([](const MachineOptions& options) {
    Machine machine(devices(options, count));
    std::vector<std::vector<float>> shards(count, std::vector<float>(8 * 128));
    std::vector<std::vector<float>> gathered(count, std::vector<float>(count * 8 * 128, -1.0f));
    std::vector<Array<float>> x;
    std::vector<Array<float>> out;
    for (int d = 0; d < count; ++d) {
      auto& shard = shards[static_cast<std::size_t>(d)];
      std::iota(shard.begin(), shard.end(), 1000.0f * static_cast<float>(d));
      x.push_back(machine.array<float>(numbered("x", static_cast<int>(d)),
                                       View::host(shard.data(), DType::f32, {8, 128}), d));
      out.push_back(
          machine.array<float>(numbered("out", static_cast<int>(d)),
                               MutableView::host(gathered[static_cast<std::size_t>(d)].data(),
                                                 DType::f32, {count * 8, 128}),
                               d));
    }
    const auto run = [&](bool waits) {
      kernel(
          machine, "all_gather", tensorcore_mesh(machine, 1),
          [&](auto mine, auto all_shards, auto send, auto receive) {
            const int right = (device_index() + 1) % count;
            const auto rows = [&](int device) { return all_shards.at(ds(8 * device, 8)); };
            sync_copy(mine, rows(device_index()));
            barrier();
            for (int step = 0; step < count - 1; ++step) {
              const int shard = (device_index() - step + count) % count;
              auto copy =
                  make_async_remote_copy(rows(shard), rows(shard), send, receive, Target{right, 0});
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
          },
          DmaSem{"send"}, DmaSem{"receive"})(x, out);
    };
    run(true);
    for (const auto& result : gathered) {
      for (std::size_t d = 0; d < count; ++d) {
        for (std::size_t i = 0; i < 8 * 128; ++i) EXPECT_EQ(result[d * 1024 + i], shards[d][i]);
      }
    }
    EXPECT_EQ(machine.report().bytes_remote, count * (count - 1) * 4096);
    expect_error(ErrorKind::race, {"'out", "device"}, [&] { run(false); });
  });
}

// The example of jax.lax.ragged_all_to_all's documentation, row by row.
TEST(TileRemote, RaggedAllToAll) {
  const std::vector<std::vector<std::int32_t>> operand = {{1, 2, 2}, {3, 4, 0}};
  const int input_offsets[2][2] = {{0, 1}, {0, 1}};
  const int send_sizes[2][2] = {{1, 2}, {1, 1}};
  const int output_offsets[2][2] = {{0, 0}, {1, 2}};
  const int receive_sizes[2][2] = {{1, 1}, {2, 1}};
  const std::vector<std::vector<std::int32_t>> expected = {{1, 3, 0, 0}, {2, 2, 4, 0}};
  for_each_order([&](MachineOptions options) {
    options.devices = 2;
    Machine machine(options);
    std::vector<std::vector<std::int32_t>> in(2, std::vector<std::int32_t>(3 * 8 * 128));
    std::vector<std::vector<std::int32_t>> got(2, std::vector<std::int32_t>(4 * 8 * 128, 0));
    std::vector<Array<std::int32_t>> x;
    std::vector<Array<std::int32_t>> out;
    for (std::size_t d = 0; d < 2; ++d) {
      // A row of the example is a tile here.
      for (std::size_t i = 0; i < in[d].size(); ++i) in[d][i] = operand[d][i / 1024];
      x.push_back(machine.array<std::int32_t>(numbered("operand", static_cast<int>(d)),
                                              View::host(in[d].data(), DType::i32, {24, 128}),
                                              static_cast<int>(d)));
      out.push_back(machine.array<std::int32_t>(
          numbered("output", static_cast<int>(d)),
          MutableView::host(got[d].data(), DType::i32, {32, 128}), static_cast<int>(d)));
    }
    kernel(
        machine, "ragged_all_to_all", tensorcore_mesh(machine, 1),
        [&](auto from, auto to, auto send, auto receive) {
          const int me = device_index();
          for (int peer = 0; peer < 2; ++peer) {
            for (int row = 0; row < send_sizes[me][peer]; ++row) {
              auto copy =
                  make_async_remote_copy(from.at(ds(8 * (input_offsets[me][peer] + row), 8)),
                                         to.at(ds(8 * (output_offsets[me][peer] + row), 8)), send,
                                         receive, Target{peer, 0});
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
        },
        DmaSem{"send"}, DmaSem{"receive"})(x, out);
    for (std::size_t d = 0; d < 2; ++d) {
      for (std::size_t i = 0; i < got[d].size(); ++i) EXPECT_EQ(got[d][i], expected[d][i / 1024]);
    }
  });
}

TEST(TileRemote, BarriersOrder) {
  for_each_order([](const MachineOptions& options) {
    Machine machine(options);
    auto box = machine.empty_ref<float>("box", {8, 128});
    const auto run = [&](int barriers) {
      kernel(
          machine, "hand_over", tensorcore_mesh(machine),
          [&](auto shared, auto tile) {
            if (core_index() == 0) {
              tile.store(1.0f, 0, 0);
              sync_copy(tile, shared);
            }
            for (int i = 0; i < barriers; ++i) barrier();
            if (core_index() == 1) sync_copy(shared, tile);
          },
          Vmem<float>{{8, 128}, "tile"})(box);
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
    kernel(
        machine, "send", tensorcore_mesh(machine, 1),
        [&](auto tile, auto sent, auto received) {
          if (device_index() != 0) return;
          if (!scoped) {
            make_async_remote_copy(tile, tile, sent, received, target).start();
            return;
          }
          run_scoped([&](auto own) { make_async_remote_copy(tile, own, sent, received, target); },
                     Vmem<float>{{8, 128}, "own"});
        },
        Vmem<float>{{8, 128}, "tile"}, DmaSem{"sent"}, DmaSem{"received"})();
  };
  expect_error(ErrorKind::bounds, {"device 2", "2 devices"}, [&] { send({2, 0}, false); });
  expect_error(ErrorKind::bounds, {"core 1"}, [&] { send({0, 1}, false); });
  expect_error(ErrorKind::usage, {"'own'"}, [&] { send({1, 0}, true); });
  expect_error(ErrorKind::unfinished_dma, {"'tile'"}, [&] { send({1, 0}, false); });
  // An array of one device is no argument on two.
  expect_error(ErrorKind::usage, {"'here'", "device 1"},
               [&] { kernel(machine, "look", tensorcore_mesh(machine, 1), [](auto) {})(here); });
}

}  // namespace
}  // namespace tessera::tile
