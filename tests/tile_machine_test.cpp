// SPDX-License-Identifier: Apache-2.0
// Kernels on the tile machine: what they compute, and what ends them. Every program that is right
// runs with both DMA modes and several seeds and must not be able to tell.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using namespace test;

/// A tile as scratch, and a semaphore.
template <class Body>
void run(Machine& machine, AddOne& problem, Body body) {
  const auto x = problem.in(machine), out = problem.result(machine);
  on_core(machine, "add_one", Vmem<float>{{8, 128}, "tile"}, DmaSem{"arrived"}, body)(x, out);
}
template <class Body>
void refuse(Machine& machine, ErrorKind kind, std::initializer_list<const char*> parts, Body body) {
  AddOne problem;
  expect_error(kind, parts, [&] { run(machine, problem, body); });
}

TEST(TileMachine, CopiesInAndOut) {
  for_each_order([](Machine& machine) {
    AddOne problem;
    run(machine, problem, [](auto x, auto out, auto tile, auto arrived) {
      async_copy(x, tile, arrived).wait();
      AddOne::body(tile, tile);
      sync_copy(tile, out);
    });
    problem.check();
    const Report& report = machine.report();
    EXPECT_EQ(report.copies, 2);
    EXPECT_EQ(report.bytes_copied, 2 * 8 * 128 * 4);
    EXPECT_EQ(report.bytes_remote, 0);
    EXPECT_EQ(report.vmem_high_water_bytes, 8 * 128 * 4);
    EXPECT_EQ(report.buffers[0].bytes_read, 8 * 128 * 4);
    EXPECT_EQ(report.buffers[1].bytes_written, 8 * 128 * 4);
  });
}

TEST(TileMachine, ScratchStartsUninitialised) {
  Machine machine;
  on_core(machine, "look", Vmem<float>{{8, 128}}, Vmem<bf16>{{16, 128}}, Smem<std::int32_t>{{4}},
          [](auto tile, auto bits, auto counts) {
            EXPECT_TRUE(std::isnan(tile.load(7, 127)));
            EXPECT_TRUE(std::isnan(static_cast<float>(bits.load(15, 127))));
            EXPECT_EQ(counts.load(3), std::numeric_limits<std::int32_t>::max());
          })();
  machine = Machine({.uninitialized = Uninitialized::zero});
  on_core(machine, "look", Vmem<float>{{8, 128}},
          [](auto tile) { EXPECT_EQ(tile.load(7, 127), 0.0f); })();
}

TEST(TileMachine, WhatOnlyCopiesReach) {
  Machine machine;
  refuse(machine, ErrorKind::space, {"'x'", "'add_one'", "core 0", "hbm"},
         [](auto x, auto, auto, auto) { x.load(0, 0); });
  refuse(machine, ErrorKind::usage, {"'x'", "constant"},
         [](auto x, auto, auto tile, auto) { sync_copy(tile, x); });
}

TEST(TileMachine, Bounds) {
  Machine machine;
  const auto refused = [&](std::initializer_list<const char*> parts, auto slice) {
    refuse(machine, ErrorKind::bounds, parts, [&](auto x, auto...) { slice(x); });
  };
  refused({"'x'", "dimension 0", "[-8, 0)", "core 0"}, [](auto x) { x.at(ds(-8, 8), all); });
  refused({"dimension 1", "[64, 192)", "0 to 127"}, [](auto x) { x.at(all, ds(64, 128)); });
  refused({"dimension 0", "element 8"}, [](auto x) { x.at(8); });
  // Counted in the slice, not in the array.
  refused({"0 to 3"}, [](auto x) { x.at(ds(4, 4)).at(ds(2, 4)); });
  refused({"3 indices"}, [](auto x) { x.at(0, 0, 0); });
}

TEST(TileMachine, PartsOfTilesAreNotCopied) {
  AddOne problem{16, 256};
  const auto copy = [&](Slice rows, Slice columns, bool check) {
    Machine machine({.check_layout = check});
    on_core(machine, "part", Vmem<float>{{16, 256}}, [&](auto from, auto tile) {
      sync_copy(from.at(rows, columns), tile.at(ds(0, rows.size), ds(0, columns.size)));
      EXPECT_EQ(tile.load(0, 0), static_cast<float>(rows.start * 256 + columns.start));
    })(problem.in(machine));
  };
  copy({8, 8}, {128, 128}, true);
  copy({0, 16}, {0, 256}, true);
  expect_error(ErrorKind::layout, {"R6", "'x'", "3"}, [&] { copy({3, 8}, {0, 128}, true); });
  expect_error(ErrorKind::layout, {"R6", "'x'"}, [&] { copy({0, 8}, {64, 128}, true); });
  copy({3, 8}, {64, 100}, false);
}

TEST(TileMachine, MemoryBudgets) {
  Machine machine;
  const auto nothing = [](auto...) {};
  const auto limit = machine.options().chip.scoped_vmem_bytes;
  on_core(machine, "full", Vmem<float>{{limit / 4096 * 8, 128}}, nothing)();
  EXPECT_EQ(machine.report().vmem_high_water_bytes, limit / 4096 * 4096);
  expect_error(ErrorKind::vmem, {"R13", "weights", "sums"}, [&] {
    on_core(machine, "more", Vmem<float>{{limit / 4096 * 8, 128}, "weights"},
            Vmem<float>{{64, 128}, "sums"}, nothing)();
  });
  expect_error(ErrorKind::smem, {"table"}, [&] {
    on_core(machine, "words",
            Smem<std::int32_t>{{machine.options().chip.smem_bytes / 4 + 1}, "table"}, nothing)();
  });
  // A scope's memory is free again after it.
  on_core(machine, "scopes", [&] {
    for (int i = 0; i < 3; ++i) {
      run_scoped([](auto tile) { tile.store(1.0f, 0, 0); },
                 Vmem<float>{{limit / 4096 * 8, 128}, "most of it"});
    }
  })();
}

TEST(TileMachine, CopiesThatNobodyWaitsFor) {
  for (const DmaMode dma : {DmaMode::eager, DmaMode::on_wait}) {
    Machine machine({.dma = dma});
    refuse(machine, ErrorKind::unfinished_dma, {"nobody waits"},
           [](auto x, auto, auto tile, auto arrived) { async_copy(x, tile, arrived); });
    // What is not there yet is read.
    refuse(machine, ErrorKind::race, {"'tile'", "copy", "core 0"},
           [](auto x, auto, auto tile, auto arrived) {
             auto copy = async_copy(x, tile, arrived);
             tile.load(0, 0);
             copy.wait();
           });
    // What is still being read is overwritten.
    refuse(machine, ErrorKind::race, {"'tile'"}, [](auto x, auto out, auto tile, auto arrived) {
      sync_copy(x, tile);
      auto copy = async_copy(tile, out, arrived);
      tile.store(0.0f, 0, 0);
      copy.wait();
    });
    // Two copies, one wait: which of them it was for depends on the mode.
    refuse(machine, ErrorKind::race, {"copy", "nothing orders"},
           [](auto x, auto, auto tile, auto arrived) {
             run_scoped(
                 [&](auto other) {
                   auto first = async_copy(x, tile, arrived);
                   auto second = async_copy(x, other, arrived);
                   first.wait();
                   other.load(0, 0);
                   tile.load(0, 0);
                   second.wait();
                 },
                 Vmem<float>{{8, 128}, "other"});
           });
    // A scope that ends before its copy.
    refuse(machine, ErrorKind::unfinished_dma, {"'short'"}, [](auto x, auto, auto, auto arrived) {
      run_scoped([&](auto tile) { async_copy(x, tile, arrived); }, Vmem<float>{{8, 128}, "short"});
    });
  }
}

TEST(TileMachine, TwoCoresShareAnArray) {
  const auto write = [](MachineOptions options, bool apart) {
    Machine machine(options);
    Tensor<float> out({16, 128});
    launch(machine, "both", tensorcore_mesh(machine), Vmem<float>{{8, 128}, "tile"},
           [&](auto to, auto tile) {
             set(tile, [](auto, auto) { return core_index() + 1; });
             sync_copy(tile, to.at(ds(apart ? 8 * core_index() : 0, 8)));
           })(out.in(machine, "out"));
    EXPECT_EQ(out.data[0], 1.0f);
    EXPECT_EQ(out.data[8 * 128], 2.0f);
  };
  for_each_order([&](const MachineOptions& options) {
    write(options, true);
    expect_error(ErrorKind::race, {"'out'", "core 0", "core 1"}, [&] { write(options, false); });
  });
}

TEST(TileMachine, SignalsOrder) {
  for_each_order([](const MachineOptions& options) {
    const auto pass_on = [&](bool waits) {
      Machine machine(options);
      auto box = machine.empty_ref<float>("box", {8, 128});
      launch(machine, "pass_on", tensorcore_mesh(machine), Vmem<float>{{8, 128}, "tile"},
             RegularSem{"ready"}, [&](auto shared, auto tile, auto ready) {
               if (core_index() == 0) {
                 tile.store(7.0f, 3, 5);
                 sync_copy(tile, shared);
                 semaphore_signal(ready, 1, Target{0, 1});
               } else {
                 if (waits) semaphore_wait(ready);
                 sync_copy(shared, tile);
                 EXPECT_EQ(tile.load(3, 5), 7.0f);
                 if (!waits) semaphore_wait(ready);
               }
             })(box);
    };
    pass_on(true);
    if (options.seed == 0) {
      expect_error(ErrorKind::race, {"'box'"}, [&] { pass_on(false); });
    }
  });
}

TEST(TileMachine, Deadlocks) {
  Machine machine;
  const auto stuck = [&](int cores, auto body) {
    launch(machine, "stuck", tensorcore_mesh(machine, cores), RegularSem{"mine"},
           RegularSem{"yours"}, body)();
  };
  const auto refused = [&](ErrorKind kind, std::initializer_list<const char*> parts, int cores,
                           auto body) { expect_error(kind, parts, [&] { stuck(cores, body); }); };
  const ErrorKind deadlock = ErrorKind::deadlock;
  refused(deadlock, {"core 0", "'mine'", "2", "holds 1", "'stuck'"}, 1, [](auto mine, auto) {
    semaphore_signal(mine);
    semaphore_wait(mine, 2);
  });
  refused(deadlock, {"core 0", "'mine'", "core 1", "'yours'"}, 2,
          [](auto mine, auto yours) { semaphore_wait(core_index() == 0 ? mine : yours); });
  refused(deadlock, {"barrier", "core 1"}, 2, [](auto, auto) {
    if (core_index() == 1) barrier();
  });
  refused(ErrorKind::semaphore, {"'mine'", "ends with 1"}, 1,
          [](auto mine, auto) { semaphore_signal(mine); });
  // The machine goes on afterwards.
  stuck(2, [](auto mine, auto) {
    semaphore_signal(mine);
    barrier();
    semaphore_wait(mine);
    barrier();
  });
}

TEST(TileMachine, AnErrorOfOneCoreEndsAll) {
  Machine machine;
  expect_error(ErrorKind::bounds, {"core 1"}, [&] {
    launch(machine, "fails", tensorcore_mesh(machine), Vmem<float>{{8, 128}, "tile"},
           RegularSem{"never"}, [](auto tile, auto never) {
             if (core_index() == 1) tile.load(8, 0);
             semaphore_wait(never);
           })();
  });
}

TEST(TileMachine, DataInSmemSteers) {
  for_each_order([](Machine& machine) {
    Tensor<float> table({64, 128}, iota(64 * 128)), out({32, 128});
    Tensor<std::int32_t> rows({4}, {5, 2, 2, 7});
    on_core(machine, "gather", Smem<std::int32_t>{{4}, "indices"}, Vmem<float>{{8, 128}, "tile"},
            [](auto from, auto which, auto to, auto indices, auto tile) {
              sync_copy(which, indices);
              for (int step = 0; step < 4; ++step) {
                sync_copy(from.at(ds(indices.load(step) * 8, 8)), tile);
                sync_copy(tile, to.at(ds(step * 8, 8)));
              }
            })(table.in(machine), rows.in(machine), out.in(machine));
    for (std::size_t i = 0; i < out.data.size(); ++i) {
      const auto tile = static_cast<std::size_t>(rows.data[i / 1024]);
      EXPECT_EQ(out.data[i], table.data[tile * 1024 + i % 1024]);
    }
  });
}

TEST(TileMachine, CopiesThatAdd) {
  Machine machine;
  AddOne problem;
  problem.out.assign(8 * 128, 10.0f);
  run(machine, problem, [](auto x, auto out, auto tile, auto arrived) {
    sync_copy(x, tile);
    async_copy(tile, out, arrived, {.add = true}).wait();
  });
  for (std::size_t i = 0; i < problem.out.size(); ++i) EXPECT_EQ(problem.out[i], problem.x[i] + 10);
  refuse(machine, ErrorKind::usage, {"priority 2"}, [](auto x, auto, auto tile, auto arrived) {
    async_copy(x, tile, arrived, {.priority = 2});
  });
}

TEST(TileMachine, ALoopOverAKernelAllocatesNothing) {
  Machine machine;
  Tensor<float> x({8, 128});
  const auto array = x.in(machine, "x");
  auto add =
      on_core(machine, "add_in_place", Vmem<float>{{8, 128}, "tile"}, [](auto ref, auto tile) {
        sync_copy(ref, tile);
        AddOne::body(tile, tile);
        sync_copy(tile, ref);
      });
  machine.reset_report();
  for (int i = 0; i < 10; ++i) add(array);
  EXPECT_EQ(x.data[77], 10.0f);
  EXPECT_EQ(machine.report().copies, 20);
  EXPECT_EQ(machine.report().hbm_allocations, 0);
  EXPECT_EQ(machine.report().bytes_copied, 20 * 4096);
  EXPECT_EQ(machine.freeze(array)[5], 10.0f);
  expect_error(ErrorKind::usage, {"'x'", "frozen"}, [&] { add(array); });
}

TEST(TileMachine, ADryRunHasTheSameCounts) {
  const auto counts = [](bool dry) {
    Machine machine({.dry_run = dry});
    AddOne problem;
    run(machine, problem, [](auto x, auto out, auto tile, auto arrived) {
      async_copy(x, tile, arrived).wait();
      AddOne::body(tile, tile);
      sync_copy(tile, out);
    });
    EXPECT_EQ(problem.out[0], dry ? -1.0f : 1.0f);
    return std::tuple{machine.report().copies, machine.report().bytes_copied,
                      machine.report().vmem_high_water_bytes};
  };
  EXPECT_EQ(counts(true), counts(false));
}

}  // namespace
}  // namespace tessera::tile
