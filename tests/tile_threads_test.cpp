// SPDX-License-Identifier: Apache-2.0
// Cores and devices on several threads: the same bits and the same report as one after the other.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/tile/call.hpp"
#include "tessera/tile/ops.hpp"
#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using namespace test;

struct Outcome {
  Tensor<float> values;
  Report report;
};

/// 2 devices of 2 cores: each core multiplies its half of the rows, hands its result to the same
/// core of the other device, and adds what it got.
Outcome exchange(int threads, DmaMode dma) {
  constexpr std::int64_t m = 256, k = 256, n = 256;
  Machine machine({.chip = find_chip("v5p"),
                   .devices = 2,
                   .dma = dma,
                   .detect_races = false,
                   .threads = threads});
  Tensor<float> a({2, m, k}), b({2, k, n}), sums({2, m, n});
  for (int i = 0; float& value : a.data) value = std::sin(static_cast<float>(i++));
  for (int i = 0; float& value : b.data) value = std::cos(static_cast<float>(3 * i++));
  launch(machine, "exchange", tensorcore_mesh(machine, 2), Vmem<float>{{m / 2, k}, "x tile"},
         Vmem<float>{{k, n}, "w tile"}, Vmem<float>{{m / 2, n}, "sum"},
         Vmem<float>{{m / 2, n}, "got"}, DmaSem{"send"}, DmaSem{"receive"}, RegularSem{"ready"},
         [&](auto x, auto w, auto out, auto x_tile, auto w_tile, auto sum, auto got, auto send,
             auto receive, auto ready) {
           const Slice mine = ds(core_index() * m / 2, m / 2);
           sync_copy(x.at(mine), x_tile);
           sync_copy(w, w_tile);
           dot(x_tile, w_tile, sum);
           map(
               sum, [](float v, float scale) { return exp(v * scale); }, sum,
               0.01f * static_cast<float>(device_index() + 1));
           const Target other{.device = 1 - device_index(), .core = core_index()};
           semaphore_signal(ready, 1, other);
           semaphore_wait(ready);
           auto copy = make_async_remote_copy(sum, got, send, receive, other);
           copy.start();
           copy.wait();
           map(
               got, [](float p, float q) { return p + q; }, got, sum);
           sync_copy(got, out.at(mine));
           barrier();
         })(a.per_device(machine), b.per_device(machine), sums.per_device(machine));
  return {sums, machine.report()};
}

TEST(TileThreads, SameBitsAndReport) {
  for (const DmaMode dma : {DmaMode::eager, DmaMode::on_wait}) {
    const Outcome alone = exchange(1, dma);
    for (int round = 0; round < 5; ++round) {
      const Outcome beside = exchange(4, dma);
      ASSERT_EQ(alone.values.data, beside.values.data) << "or a NaN";
      EXPECT_EQ(alone.report.copies, beside.report.copies);
      EXPECT_EQ(alone.report.bytes_remote, beside.report.bytes_remote);
      EXPECT_EQ(alone.report.work.flops, beside.report.work.flops);
      EXPECT_EQ(alone.report.time.modelled_seconds, beside.report.time.modelled_seconds);
    }
  }
}

TEST(TileThreads, ErrorsEndEverybody) {
  // One core computes for ever while the other fails; and all wait for what never comes.
  Machine machine({.chip = find_chip("v5p"), .detect_races = false, .threads = 4});
  const auto run = [&](auto body) {
    launch(machine, "fails", tensorcore_mesh(machine, 2), Vmem<float>{{512, 1024}, "tile"},
           RegularSem{"never"}, body)();
  };
  expect_error(ErrorKind::space, {"core 1"}, [&] {
    run([](auto tile, auto never) {
      for (int i = 0; i < 3; ++i) fill(tile, 1.0f);
      if (core_index() == 1) {
        throw TileError(ErrorKind::space, "core 1 gives up");
      }
      semaphore_wait(never);
    });
  });
  expect_error(ErrorKind::deadlock, {"core 0 waits for 1 of semaphore 'never'", "core 1"}, [&] {
    run([](auto tile, auto never) {
      fill(tile, 1.0f);
      semaphore_wait(never);
    });
  });
}

}  // namespace
}  // namespace tessera::tile
