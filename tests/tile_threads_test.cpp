// SPDX-License-Identifier: Apache-2.0
// Cores and devices on several threads: the same bits and the same report as one after the other.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/tile/call.hpp"
#include "tessera/tile/ops.hpp"
#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using test::expect_error;

struct Outcome {
  std::vector<float> values;
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
  std::vector<float> a(m * k), b(k * n);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<float>(i));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = std::cos(static_cast<float>(3 * i));
  Outcome outcome;
  outcome.values.assign(2 * m * n, -1.0f);
  std::vector<Array<float>> as, bs, outs;
  for (int device = 0; device < 2; ++device) {
    as.push_back(machine.array<float>("a", View::host(a.data(), DType::f32, {m, k}), device));
    bs.push_back(machine.array<float>("b", View::host(b.data(), DType::f32, {k, n}), device));
    outs.push_back(machine.array<float>(
        "out", MutableView::host(outcome.values.data() + device * m * n, DType::f32, {m, n}),
        device));
  }
  kernel(
      machine, "exchange", tensorcore_mesh(machine, 2),
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
      },
      Vmem<float>{{m / 2, k}, "x tile"}, Vmem<float>{{k, n}, "w tile"},
      Vmem<float>{{m / 2, n}, "sum"}, Vmem<float>{{m / 2, n}, "got"}, DmaSem{"send"},
      DmaSem{"receive"}, RegularSem{"ready"})(as, bs, outs);
  outcome.report = machine.report();
  return outcome;
}

TEST(TileThreads, SameBitsAndReport) {
  for (const DmaMode dma : {DmaMode::eager, DmaMode::on_wait}) {
    const Outcome alone = exchange(1, dma);
    for (int round = 0; round < 5; ++round) {
      const Outcome beside = exchange(4, dma);
      for (std::size_t i = 0; i < alone.values.size(); ++i) {
        ASSERT_EQ(alone.values[i], beside.values[i]) << i;
        ASSERT_FALSE(std::isnan(alone.values[i])) << i;
      }
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
    kernel(machine, "fails", tensorcore_mesh(machine, 2), body, Vmem<float>{{512, 1024}, "tile"},
           RegularSem{"never"})();
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
