// SPDX-License-Identifier: Apache-2.0
// The replay of the time model on logs written by hand, where every time is known.
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "host/tile/time.hpp"
#include "tessera/tile/error.hpp"

namespace tessera::tile {
namespace {

/// 1000 bytes are a second of HBM, 100 of a link, 10,000 on chip; no latencies.
Rates simple_rates() {
  Rates rates;
  rates.mxu = 1;
  rates.vpu = rates.eup = rates.xlu = 1;
  rates.unit_overlap = 1;
  rates.hbm = 1000;
  rates.vmem = 10'000;
  rates.ici = 100;
  return rates;
}

constexpr std::size_t x_buffer = 0;
constexpr std::size_t tile_buffer = 1;
constexpr std::size_t out_buffer = 2;
constexpr std::size_t buffers = 3;

CopyEvent copy_in(std::int64_t bytes, int semaphore, int device = 0) {
  return {.from_buffer = x_buffer,
          .to_buffer = tile_buffer,
          .from_space = MemorySpace::hbm,
          .to_space = MemorySpace::vmem,
          .to_device = device,
          .bytes = bytes,
          .amount = bytes,
          .receive = semaphore};
}
CopyEvent copy_out(std::int64_t bytes, int semaphore) {
  CopyEvent event = copy_in(bytes, semaphore);
  event.from_buffer = tile_buffer;
  event.to_buffer = out_buffer;
  std::swap(event.from_space, event.to_space);
  return event;
}
WorkEvent vpu(double seconds) { return {{.vpu_ops = seconds}}; }

using Events = std::vector<Event>;

/// Cores of device 0.
std::vector<CoreLog> on_one_device(std::vector<Events> cores) {
  std::vector<CoreLog> logs;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    logs.push_back({.core = static_cast<int>(i), .events = std::move(cores[i])});
  }
  return logs;
}
/// One core each of several devices.
std::vector<CoreLog> on_devices(std::vector<Events> cores) {
  auto logs = on_one_device(std::move(cores));
  for (auto& log : logs) std::swap(log.device, log.core);
  return logs;
}

auto run(const Rates& rates, std::vector<Events> cores) {
  return replay(rates, on_one_device(std::move(cores)), buffers);
}

TEST(TileTime, OneCopyTakesItsBytesAndTheLatency) {
  Rates rates = simple_rates();
  rates.dma_latency = 0.5;
  const auto one = run(rates, {{copy_in(2000, 0), TakeEvent{0, 2000}}});
  EXPECT_DOUBLE_EQ(one.time.seconds, 2.5);
  EXPECT_DOUBLE_EQ(one.time.busy.hbm, 2);
  EXPECT_DOUBLE_EQ(one.time.busy.core, 0);
  EXPECT_DOUBLE_EQ(one.time.cores[0].waiting, 2.5);
  EXPECT_DOUBLE_EQ(one.waits.by_buffer[x_buffer], 2.5);
  EXPECT_DOUBLE_EQ(one.waits.by_buffer[tile_buffer], 0);
  EXPECT_DOUBLE_EQ(one.time.lower_bound_seconds, 2);
  EXPECT_DOUBLE_EQ(one.time.upper_bound_seconds, 2.5);
}

TEST(TileTime, CopiesOfAChannelQueueAndTheirLatenciesDoNot) {
  Rates rates = simple_rates();
  rates.dma_latency = 0.5;
  const auto both =
      run(rates, {{copy_in(1000, 0), copy_out(3000, 1), TakeEvent{0, 1000}, TakeEvent{1, 3000}}});
  EXPECT_DOUBLE_EQ(both.time.seconds, 4.5);
  EXPECT_DOUBLE_EQ(both.waits.by_buffer[x_buffer], 1.5);
  EXPECT_DOUBLE_EQ(both.waits.by_buffer[out_buffer], 3);
  // Waiting for both at once, or for one byte by byte, is the same.
  const auto counted =
      run(rates, {{copy_in(1000, 0), copy_in(3000, 0), TakeEvent{0, 500}, TakeEvent{0, 3500}}});
  EXPECT_DOUBLE_EQ(counted.time.seconds, 4.5);
}

TEST(TileTime, CoresShareTheMemoryOfTheirDevice) {
  Rates rates = simple_rates();
  const auto logs = on_one_device(
      {{copy_in(1000, 0), TakeEvent{0, 1000}}, {vpu(0.5), copy_in(1000, 1), TakeEvent{1, 1000}}});
  const auto apart = replay(rates, logs, buffers);
  EXPECT_DOUBLE_EQ(apart.time.cores[0].seconds, 1);
  EXPECT_DOUBLE_EQ(apart.time.cores[1].seconds, 1.5);
  EXPECT_DOUBLE_EQ(apart.time.busy.hbm, 1);
  rates.shared_hbm = true;
  const auto shared = replay(rates, logs, buffers);
  EXPECT_DOUBLE_EQ(shared.time.cores[0].seconds, 1);
  EXPECT_DOUBLE_EQ(shared.time.cores[1].seconds, 2);
  EXPECT_DOUBLE_EQ(shared.time.cores[1].waiting, 1.5);
  EXPECT_DOUBLE_EQ(shared.time.busy.hbm, 2);
}

TEST(TileTime, SubcoresUseTheMemoryOfTheirTensorCore) {
  Rates rates = simple_rates();
  rates.subcore = 0.5;
  auto logs = on_one_device({{copy_in(1000, 0), TakeEvent{0, 1000}},
                             {copy_in(1000, 1), TakeEvent{1, 1000}, vpu(1)},
                             {copy_in(1000, 2), TakeEvent{2, 1000}}});
  logs[0].tensor_core = logs[1].tensor_core = false;
  const auto one = replay(rates, logs, buffers);
  EXPECT_DOUBLE_EQ(one.time.cores[0].seconds, 1);
  EXPECT_DOUBLE_EQ(one.time.cores[1].seconds, 2 + 2);
  EXPECT_DOUBLE_EQ(one.time.cores[2].seconds, 3);
  EXPECT_FALSE(one.time.cores[0].tensor_core);
}

/// Blocks that come while the last one is worked on.
Events double_buffered(int steps, double work) {
  Events events{copy_in(1000, 0)};
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) events.push_back(copy_in(1000, (step + 1) % 2));
    events.push_back(TakeEvent{step % 2, 1000});
    events.push_back(vpu(work));
  }
  return events;
}

TEST(TileTime, DoubleBufferingHidesTheShorter) {
  Rates rates = simple_rates();
  const int steps = 10;
  // Memory-bound: the copies follow each other, the last block's work comes after them.
  auto one = run(rates, {double_buffered(steps, 0.25)});
  EXPECT_DOUBLE_EQ(one.time.seconds, steps * 1.0 + 0.25);
  EXPECT_DOUBLE_EQ(one.time.busy.hbm, steps);
  // Compute-bound: only the first copy is seen.
  one = run(rates, {double_buffered(steps, 4)});
  EXPECT_DOUBLE_EQ(one.time.seconds, 1 + steps * 4.0);
  EXPECT_DOUBLE_EQ(one.time.cores[0].waiting, 1);
  // A latency that the work covers costs once; one that it does not, nothing more: the next copy
  // is on its way already.
  rates.dma_latency = 2;
  one = run(rates, {double_buffered(steps, 4)});
  EXPECT_DOUBLE_EQ(one.time.seconds, 3 + steps * 4.0);
  // Overheads of steps and launch are the core's.
  rates.launch_overhead = 7;
  rates.step_overhead = 0.5;
  one = run(rates, {{StepEvent{}, vpu(1), StepEvent{}, vpu(1)}});
  EXPECT_DOUBLE_EQ(one.time.seconds, 10);
  EXPECT_DOUBLE_EQ(one.time.busy.core, 10);
  EXPECT_DOUBLE_EQ(one.time.busy.vpu, 2);
}

TEST(TileTime, UnitsOfOnePieceOfWorkOverlapAsFarAsTheParameterSays) {
  Rates rates = simple_rates();
  rates.mxu = 2;
  rates.eup = 4;
  const auto logs = on_one_device({{WorkEvent{
      {.mxu_seconds = 3, .vpu_ops = 5, .eup_ops = 8, .xlu_ops = 1}}}});  // 6, 5, 2 and 1 s
  EXPECT_DOUBLE_EQ(replay(rates, logs, buffers).time.seconds, 6);
  rates.unit_overlap = 0;
  EXPECT_DOUBLE_EQ(replay(rates, logs, buffers).time.seconds, 14);
  rates.unit_overlap = 0.75;
  const auto one = replay(rates, logs, buffers);
  EXPECT_DOUBLE_EQ(one.time.seconds, 8);
  EXPECT_DOUBLE_EQ(one.time.busy.mxu, 6);
  EXPECT_DOUBLE_EQ(one.time.busy.eup, 2);
}

TEST(TileTime, SignalsArriveWhenTheyAreSent) {
  Rates rates = simple_rates();
  rates.ici_latency = 0.25;
  const std::vector<Events> cores = {{vpu(3), SignalEvent{0, 2}, vpu(1)},
                                     {vpu(1), TakeEvent{0, 1}, vpu(1), TakeEvent{0, 1}}};
  const auto one = run(rates, cores);
  EXPECT_DOUBLE_EQ(one.time.cores[0].seconds, 4);
  EXPECT_DOUBLE_EQ(one.time.cores[1].seconds, 4);
  EXPECT_DOUBLE_EQ(one.time.cores[1].waiting, 2);
  // To another device over a link.
  EXPECT_DOUBLE_EQ(replay(rates, on_devices(cores), buffers).time.cores[1].seconds, 4.25);
  // The waiting core's time is what counts, not the order of the logs.
  const auto turned = run(rates, {cores[1], cores[0]});
  EXPECT_DOUBLE_EQ(turned.time.cores[0].seconds, 4);
  EXPECT_DOUBLE_EQ(turned.waits.signals, 2);
}

TEST(TileTime, ABarrierEndsForAllWithTheLast) {
  Rates rates = simple_rates();
  rates.ici_latency = 0.25;
  const std::vector<Events> cores = {{vpu(3), BarrierEvent{}, vpu(1), BarrierEvent{}},
                                     {vpu(1), BarrierEvent{}, vpu(2), BarrierEvent{}},
                                     {BarrierEvent{}, BarrierEvent{}}};
  const auto one = run(rates, cores);
  for (const CoreTime& core : one.time.cores) EXPECT_DOUBLE_EQ(core.seconds, 5);
  EXPECT_DOUBLE_EQ(one.time.cores[0].waiting, 1);
  EXPECT_DOUBLE_EQ(one.time.cores[1].waiting, 2);
  EXPECT_DOUBLE_EQ(one.time.cores[2].waiting, 5);
  // Three devices are one hop apart: every barrier takes it.
  EXPECT_DOUBLE_EQ(replay(rates, on_devices(cores), buffers).time.seconds, 5.5);
}

/// From device 0 of `devices` to `to`, where another core waits.
std::vector<CoreLog> remote(CopyEvent event, int devices, int to) {
  std::vector<Events> cores(static_cast<std::size_t>(devices));
  event.to_device = to;
  event.send = 0;
  event.receive = 1;
  cores[0] = {event, TakeEvent{0, event.amount}};
  cores[static_cast<std::size_t>(to)].push_back(TakeEvent{1, event.amount});
  return on_devices(std::move(cores));
}

TEST(TileTime, RemoteCopiesTakeMemoryThenALinkAndItsHops) {
  Rates rates = simple_rates();
  rates.dma_latency = 0.5;
  rates.ici_latency = 0.25;
  auto one = replay(rates, remote(copy_in(1000, 0), 4, 2), buffers);
  EXPECT_DOUBLE_EQ(one.time.cores[0].seconds, 1 + 10 + 0.5);
  EXPECT_DOUBLE_EQ(one.time.cores[2].seconds, 1 + 10 + 0.5 + 2 * 0.25);
  EXPECT_DOUBLE_EQ(one.time.busy.hbm, 1);
  EXPECT_DOUBLE_EQ(one.time.busy.ici, 10);
  // The other way round the ring.
  one = replay(rates, remote(copy_in(1000, 0), 4, 3), buffers);
  EXPECT_DOUBLE_EQ(one.time.cores[3].seconds, 1 + 10 + 0.5 + 0.25);
  // Out of VMEM.
  one = replay(rates, remote(copy_out(1000, 0), 4, 1), buffers);
  EXPECT_DOUBLE_EQ(one.time.cores[1].seconds, 10 + 0.5 + 0.25);
  EXPECT_DOUBLE_EQ(one.time.busy.hbm, 0);
  // Two on one link wait for each other, to two devices not.
  const auto two = [&](int second) {
    auto logs = remote(copy_out(1000, 0), 3, 1);
    CopyEvent event = copy_out(1000, 3);
    event.to_device = second;
    event.send = 2;
    logs[0].events.push_back(event);
    logs[0].events.push_back(TakeEvent{2, 1000});
    std::rotate(logs[0].events.begin() + 1, logs[0].events.begin() + 2, logs[0].events.end());
    logs[static_cast<std::size_t>(second)].events.push_back(TakeEvent{3, 1000});
    return replay(rates, logs, buffers).time.cores[0].seconds;
  };
  EXPECT_DOUBLE_EQ(two(1), 20.5);
  EXPECT_DOUBLE_EQ(two(2), 10.5);
}

TEST(TileTime, PriorityOvertakesWhatWaits) {
  // It does not overtake what is being served.
  const auto then_works = [](int priority) {
    CopyEvent late = copy_in(1000, 2);
    late.priority = priority;
    return run(simple_rates(), {{copy_in(1000, 0), copy_in(1000, 1), late, TakeEvent{2, 1000},
                                 vpu(10), TakeEvent{0, 1000}, TakeEvent{1, 1000}}})
        .time.seconds;
  };
  EXPECT_DOUBLE_EQ(then_works(0), 13);
  EXPECT_DOUBLE_EQ(then_works(1), 12);
}

TEST(TileTime, WhatCopiesUse) {
  const Rates rates = simple_rates();
  CopyEvent event = copy_in(1000, 0);
  const auto seconds = [&](MemorySpace from, MemorySpace to) {
    event.from_space = from;
    event.to_space = to;
    return run(rates, {{event, TakeEvent{0, 1000}}}).time;
  };
  EXPECT_DOUBLE_EQ(seconds(MemorySpace::hbm, MemorySpace::smem).busy.hbm, 1);
  EXPECT_DOUBLE_EQ(seconds(MemorySpace::hbm, MemorySpace::hbm).busy.hbm, 2);
  const auto on_chip = seconds(MemorySpace::vmem, MemorySpace::smem);
  EXPECT_DOUBLE_EQ(on_chip.busy.hbm, 0);
  EXPECT_DOUBLE_EQ(on_chip.busy.vmem, 0.1);
  EXPECT_DOUBLE_EQ(on_chip.seconds, 0.1);
}

TEST(TileTime, WhatCannotEndIsSaid) {
  EXPECT_THROW(run(simple_rates(), {{TakeEvent{0, 1}}}), TileError);
  EXPECT_THROW(run(simple_rates(), {{BarrierEvent{}}, {}}), TileError);
}

/// Rounds of copies, work, signals round the cores and barriers.
std::vector<CoreLog> random_logs(std::uint32_t seed, int cores, int rounds, bool devices) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<Events> logs(static_cast<std::size_t>(cores));
  for (int round = 0; round < rounds; ++round) {
    const bool meets = below(4) == 0;
    for (int core = 0; core < cores; ++core) {
      auto& events = logs[static_cast<std::size_t>(core)];
      const int copies = below(4);
      for (int i = 0; i < copies; ++i) {
        CopyEvent event = below(2) == 0 ? copy_in(100 + below(900), 2 * core)
                                        : copy_out(100 + below(900), 2 * core);
        event.to_device = devices ? core : 0;
        event.priority = below(2);
        events.push_back(event);
        events.push_back(vpu(0.1 * below(10)));
      }
      std::int64_t bytes = 0;
      for (std::size_t i = events.size() - 2 * static_cast<std::size_t>(copies); i < events.size();
           i += 2) {
        bytes += std::get<CopyEvent>(events[i]).amount;
      }
      events.push_back(SignalEvent{2 * ((core + 1) % cores) + 1, 1});
      events.push_back(TakeEvent{2 * core + 1, 1});
      events.push_back(TakeEvent{2 * core, bytes});
      if (meets) events.push_back(BarrierEvent{});
    }
  }
  return devices ? on_devices(std::move(logs)) : on_one_device(std::move(logs));
}

TEST(TileTime, LiesBetweenTheBounds) {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    for (const double latency : {0.0, 0.3}) {
      Rates rates = simple_rates();
      rates.dma_latency = rates.ici_latency = latency;
      rates.shared_hbm = seed % 2 == 0;
      const int cores = 1 + static_cast<int>(seed % 4);
      const auto logs = random_logs(seed, cores, 12, seed % 3 == 0);
      const auto one = replay(rates, logs, buffers);
      // Counted here again, from the logs alone.
      double bytes = 0;
      double most_bytes = 0;
      double most_work = 0;
      for (const CoreLog& log : logs) {
        double own = 0;
        double work = 0;
        for (const Event& event : log.events) {
          if (const auto* copy = std::get_if<CopyEvent>(&event)) {
            own += static_cast<double>(copy->bytes);
          } else if (const auto* piece = std::get_if<WorkEvent>(&event)) {
            work += piece->work.vpu_ops;
          }
        }
        bytes += own;
        most_bytes = std::max(most_bytes, own);
        most_work = std::max(most_work, work);
      }
      const bool one_channel = rates.shared_hbm && logs.back().device == 0;
      const double lower = std::max(most_work, (one_channel ? bytes : most_bytes) / rates.hbm);
      EXPECT_NEAR(one.time.lower_bound_seconds, lower, 1e-9);
      EXPECT_GE(one.time.seconds, lower - 1e-9);
      EXPECT_LE(one.time.seconds, one.time.upper_bound_seconds + 1e-9);
      for (const CoreTime& core : one.time.cores) {
        EXPECT_NEAR(core.working + core.waiting, core.seconds, 1e-9);
      }
    }
  }
}

TEST(TileTime, FiftyThousandEventsAreQuick) {
  const auto logs = random_logs(1, 2, 3400, false);
  std::size_t events = 0;
  for (const CoreLog& log : logs) events += log.events.size();
  ASSERT_GT(events, 40'000u);
  const auto start = std::chrono::steady_clock::now();
  const auto one = replay(simple_rates(), logs, buffers);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GT(one.time.seconds, 0);
  RecordProperty("milliseconds", static_cast<int>(took.count() * 1e3));
  // Some 10 ms; sanitized on a busy machine 50 times that.
  EXPECT_LT(took.count(), 1);
}

}  // namespace
}  // namespace tessera::tile
