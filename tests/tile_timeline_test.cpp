// SPDX-License-Identifier: Apache-2.0
// The time that a machine reports of its kernels, and the timeline it writes.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "host/tile/time.hpp"
#include "tessera/tile/pipeline.hpp"
#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using namespace test;

constexpr std::int64_t rows = 64;
constexpr double tile_bytes = 8 * 128 * 4;

/// Each core adds one to its share of the tiles, two buffers each way, and they meet at the end.
void add_one(Machine& machine, int cores, const std::string& name = "x", int devices = 1) {
  Tensor<float> data({devices, rows, 128}), sums({devices, rows, 128});
  launch(machine, "add \"one\"", tensorcore_mesh(machine, cores), Vmem<float>{{8, 128}, "a"},
         Vmem<float>{{8, 128}, "b"}, DmaSem{"in"}, DmaSem{"done"}, RegularSem{"ready"},
         [](auto from, auto to, auto a, auto b, auto in, auto done, auto ready) {
           const std::int64_t mine = rows / 8 / num_cores();
           for (std::int64_t i = 0; i < mine; ++i) {
             const auto tile = ds(8 * (core_index() * mine + i), 8);
             async_copy(from.at(tile), a, in).wait();
             detail::charge({.vpu_ops = 1024, .eup_ops = 512});
             b.store(a.load(0, 0) + 1, 0, 0);
             async_copy(b, to.at(tile), done).wait();
           }
           if (num_cores() == 2) {
             semaphore_signal(ready, 1, Target{device_index(), 1 - core_index()});
             semaphore_wait(ready, 1);
           }
           detail::charge(
               {.flops = 2e6, .padded_flops = 4e6, .mxu_flops = 1.2e7, .mxu_seconds = 5e-8});
           barrier();
         })(data.per_device(machine, name), sums.per_device(machine, "out"));
}

void expect_same(const TimeReport& a, const TimeReport& b) {
  EXPECT_EQ(a.modelled_seconds, b.modelled_seconds);
  EXPECT_EQ(a.busy.core, b.busy.core);
  EXPECT_EQ(a.busy.hbm, b.busy.hbm);
  EXPECT_EQ(a.waiting_seconds, b.waiting_seconds);
  EXPECT_EQ(a.waits_for, b.waits_for);
  EXPECT_EQ(a.waits_for_seconds, b.waits_for_seconds);
  EXPECT_EQ(a.bound, b.bound);
  EXPECT_EQ(a.upper_bound_seconds, b.upper_bound_seconds);
  EXPECT_EQ(a.mxu_utilisation, b.mxu_utilisation);
  ASSERT_EQ(a.kernels.size(), b.kernels.size());
  for (std::size_t i = 0; i < a.kernels.size(); ++i) {
    EXPECT_EQ(a.kernels[i].seconds, b.kernels[i].seconds);
    ASSERT_EQ(a.kernels[i].cores.size(), b.kernels[i].cores.size());
    for (std::size_t c = 0; c < a.kernels[i].cores.size(); ++c) {
      EXPECT_EQ(a.kernels[i].cores[c].seconds, b.kernels[i].cores[c].seconds);
    }
  }
}

TEST(TileTimeline, AKernelTakesWhatItsCopiesAndItsWorkTake) {
  const TimeParameters parameters{.mxu_efficiency = 0.5,
                                  .vpu_ops_per_second = 1e12,
                                  .unit_overlap = 0,
                                  .hbm_efficiency = 0.8,
                                  .launch_overhead_seconds = 2e-6};
  Machine machine({.chip = find_chip("v5e"), .time = parameters});
  add_one(machine, 1);
  add_one(machine, 1);
  const TimeReport& time = machine.report().time;
  const double copy =
      tile_bytes / (0.8 * machine.options().chip.hbm_bandwidth) + parameters.dma_latency_seconds;
  const double one = 2e-6 + 8 * (2 * copy + 1024 / 1e12 + 512 / 0.25e12) + 5e-8 / 0.5;
  ASSERT_EQ(time.kernels.size(), 2u);
  EXPECT_NEAR(time.kernels[0].seconds, one, 1e-12);
  EXPECT_NEAR(time.modelled_seconds, 2 * one, 1e-12);
  EXPECT_EQ(time.kernels[0].name, "add \"one\"");
  EXPECT_NEAR(time.waiting_seconds, 2 * 16 * copy, 1e-12);
  EXPECT_NEAR(time.waits_for_seconds, 2 * 8 * copy, 1e-12);
  EXPECT_TRUE(time.waits_for == "x" || time.waits_for == "out");
  EXPECT_EQ(time.bound, "latency");
  EXPECT_NEAR(time.mxu_utilisation, 5e-8 / 6 / one, 1e-9);
  EXPECT_DOUBLE_EQ(time.padding_waste, 2);
  EXPECT_DOUBLE_EQ(time.padding_waste_with_passes, 6);
  EXPECT_FALSE(time.calibrated);
  machine.reset_report();
  EXPECT_EQ(machine.report().time.modelled_seconds, 0);
  add_one(machine, 1);
  EXPECT_NEAR(machine.report().time.waits_for_seconds, 8 * copy, 1e-12);
}

TEST(TileTimeline, WhatBoundsAKernel) {
  const auto bound = [](const Work& work, int copies) {
    Machine machine({.chip = find_chip("v7"), .detect_races = false});
    auto x = machine.empty_ref<float>("x", {1024, 1024});
    on_core(machine, "k", Vmem<float>{{1024, 1024}}, DmaSem{},
            [&](auto from, auto tile, auto arrived) {
              for (int i = 0; i < copies; ++i) async_copy(from, tile, arrived);
              detail::charge(work);
              for (int i = 0; i < copies; ++i) make_async_copy(from, tile, arrived).wait();
            })(x);
    EXPECT_TRUE(machine.report().time.calibrated);
    return machine.report().time.bound;
  };
  EXPECT_EQ(bound({.mxu_seconds = 1e-3, .vpu_ops = 1}, 1), "mxu");
  EXPECT_EQ(bound({.vpu_ops = 1e12}, 1), "vpu");
  EXPECT_EQ(bound({.eup_ops = 1e12}, 1), "eup");
  EXPECT_EQ(bound({.xlu_ops = 1e12}, 1), "xlu");
  EXPECT_EQ(bound({.vpu_ops = 1}, 8), "hbm");
  EXPECT_EQ(bound({.vpu_ops = 1}, 0), "vpu");
  EXPECT_EQ(bound({}, 0), "latency");
}

TEST(TileTimeline, APipelineHidesWhatIsShorter) {
  constexpr int steps = 16;
  const auto seconds = [](double work) {
    MachineOptions options{.chip = find_chip("v5e"), .dry_run = true};
    Machine machine(options);
    const auto x = machine.empty_ref<float>("x", {steps * 1024, 1024});
    kernel(machine, "read", tensorcore_mesh(machine), [&](auto from) {
      emit_pipeline(
          {.grid = {steps}, .in = {BlockSpec::blocks({1024, 1024}, by_row)}},
          [&](auto) { detail::charge({.vpu_ops = work * vpu_rate(options.chip)}); }, from);
    })(x);
    return machine.report().time.modelled_seconds;
  };
  const TimeParameters parameters;
  const double copy = 1024 * 1024 * 4 / find_chip("v5e").hbm_bandwidth;  // 5.1 us
  const double latency = parameters.dma_latency_seconds;
  const double step = parameters.step_overhead_seconds;
  EXPECT_NEAR(seconds(20e-6), copy + latency + steps * 20e-6 + (steps - 1) * step, 1e-12);
  // The channel is never idle: what a step asks for is asked before the last copy has ended.
  EXPECT_NEAR(seconds(0.1e-6), steps * copy + latency + 0.1e-6, 1e-12);
}

TEST(TileTimeline, EveryRunOfAKernelTakesTheSameTime) {
  Machine first;
  add_one(first, 2);
  EXPECT_GT(first.report().time.modelled_seconds, 0);
  for_each_order([&](MachineOptions options) {
    for (const bool dry : {false, true}) {
      options.dry_run = dry;
      Machine machine(options);
      add_one(machine, 2);
      expect_same(machine.report().time, first.report().time);
    }
  });
  Machine without({.model_time = false});
  add_one(without, 2);
  EXPECT_EQ(without.report().time.modelled_seconds, 0);
  EXPECT_TRUE(without.report().time.kernels.empty());
}

TEST(TileTimeline, SandwichOnTheMachine) {
  for (const double latency : {0.0, 1e-6}) {
    for (const Chip& chip : chips()) {
      for (int cores = 1; cores <= chip.cores; ++cores) {
        Machine machine({.chip = chip,
                         .time = TimeParameters{.dma_latency_seconds = latency,
                                                .ici_latency_seconds = latency}});
        add_one(machine, cores);
        const TimeReport& time = machine.report().time;
        const double channel = chip.megacore ? chip.hbm_bandwidth : chip.hbm_bandwidth / chip.cores;
        const double bytes =
            static_cast<double>(machine.report().bytes_copied) / (chip.megacore ? 1 : cores);
        EXPECT_NEAR(time.busy.hbm, bytes / channel, 1e-13) << chip.name;
        EXPECT_LE(std::max(time.busy.core, bytes / channel), time.modelled_seconds + 1e-15);
        EXPECT_LE(time.modelled_seconds, time.upper_bound_seconds + 1e-15);
      }
    }
  }
}

TEST(TileTimeline, ParametersThatAreImpossibleAreRefused) {
  const auto with = [](auto set) {
    return [set] {
      MachineOptions options;
      options.time = TimeParameters{};
      set(options);
      const Machine machine(options);
    };
  };
  expect_error(ErrorKind::usage, {"hbm_efficiency", "-1"},
               with([](MachineOptions& o) { o.time->hbm_efficiency = -1; }));
  expect_error(ErrorKind::usage, {"mxu_efficiency", "0"},
               with([](MachineOptions& o) { o.time->mxu_efficiency = 0; }));
  expect_error(ErrorKind::usage, {"unit_overlap", "1.5"},
               with([](MachineOptions& o) { o.time->unit_overlap = 1.5; }));
  expect_error(ErrorKind::usage, {"dma_latency_seconds"},
               with([](MachineOptions& o) { o.time->dma_latency_seconds = -1; }));
  expect_error(ErrorKind::usage, {"hbm_bandwidth", "model_time"},
               with([](MachineOptions& o) { o.chip.hbm_bandwidth = 0; }));
  expect_error(ErrorKind::usage, {"trace"}, with([](MachineOptions& o) {
                 o.trace = true;
                 o.model_time = false;
               }));
  expect_error(ErrorKind::usage, {"MachineOptions::trace"},
               [] { perfetto_json(Machine(MachineOptions{})); });
}

TEST(TileTimeline, VectorUnitsOfTheChips) {
  // Book: about 7e12 on v5p.
  EXPECT_NEAR(vpu_rate(find_chip("v5p")), 7.17e12, 1e10);
  EXPECT_NEAR(vpu_rate(find_chip("v5e")), 6.16e12, 1e10);
  // No clock of 4.4 GHz.
  EXPECT_NEAR(vpu_rate(find_chip("v7")), 7.17e12, 1e10);
}

TEST(TileTimeline, OpensInPerfetto) {
  const std::string odd = "x \"quoted\" \\ \n \x01 \xc3\xa9 \xff";
  Machine machine({.devices = 2, .trace = true});
  add_one(machine, 2, odd, 2);
  add_one(machine, 1, odd, 2);
  const auto json = nlohmann::json::parse(perfetto_json(machine));
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  std::map<std::pair<int, int>, std::string> names;
  double copied = 0;
  double last = 0;
  for (const auto& event : json.at("traceEvents")) {
    const std::pair<int, int> track{event.at("pid"), event.at("tid")};
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") names[track] = event.at("args").at("name");
      continue;
    }
    ASSERT_EQ(event.at("ph"), "X");
    const double start = event.at("ts");
    const double length = event.at("dur");
    tracks[track].emplace_back(start, start + length);
    last = std::max(last, start + length);
    if (names.at(track).find("copies") != std::string::npos) {
      copied += event.at("args").at("bytes").get<double>();
      EXPECT_TRUE(event.at("name") == "x \"quoted\" \\ \n \x01 \xc3\xa9 \xef\xbf\xbd" ||
                  event.at("name") == "out")
          << event;
    }
    if (names.at(track) == "kernels") {
      EXPECT_EQ(event.at("name"), "add \"one\"");
    }
  }
  EXPECT_EQ(copied, static_cast<double>(machine.report().bytes_copied));
  EXPECT_NEAR(last, machine.report().time.modelled_seconds * 1e6, 1e-6);
  std::vector<std::string> used;
  for (const auto& [track, spans] : tracks) {
    used.push_back(names.at(track));
    for (std::size_t i = 0; i < spans.size(); ++i) {
      EXPECT_GT(spans[i].second, spans[i].first);
      if (i > 0) {
        EXPECT_GE(spans[i].first, spans[i - 1].second - 1e-9) << names.at(track) << i;
      }
    }
  }
  for (const char* name :
       {"kernels", "core 0 work", "core 1 waits", "core 1 copies in", "core 0 copies out"}) {
    EXPECT_EQ(std::count(used.begin(), used.end(), name), 2) << name;
  }
}

}  // namespace
}  // namespace tessera::tile
