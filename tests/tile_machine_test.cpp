// SPDX-License-Identifier: Apache-2.0
// Kernels on the tile machine: what they compute, and what ends them. Every program that is right
// runs with both DMA modes and several seeds and must not be able to tell.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using test::expect_error;
using test::for_each_order;
using test::iota;

/// out = x + 1, one tile of 8 x 128.
struct AddOne {
  std::vector<float> x = iota(8 * 128);
  std::vector<float> out = std::vector<float>(8 * 128, -1.0f);
  template <class Body>
  void run(Machine& machine, Body body) {
    auto a = machine.array<float>("x", View::host(x.data(), DType::f32, {8, 128}));
    auto b = machine.array<float>("out", MutableView::host(out.data(), DType::f32, {8, 128}));
    kernel(machine, "add_one", tensorcore_mesh(machine, 1), body, Vmem<float>{{8, 128}, "tile"},
           DmaSem{"arrived"})(a, b);
  }
  static void add(const Ref<float>& tile) {
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 128; ++j) tile.store(tile.load(i, j) + 1.0f, i, j);
    }
  }
};

TEST(TileMachine, CopiesInAndOut) {
  for_each_order([](const MachineOptions& options) {
    Machine machine(options);
    AddOne problem;
    problem.run(machine, [](auto x, auto out, auto tile, auto arrived) {
      async_copy(x, tile, arrived).wait();
      AddOne::add(tile);
      sync_copy(tile, out);
    });
    for (std::size_t i = 0; i < problem.out.size(); ++i)
      EXPECT_EQ(problem.out[i], problem.x[i] + 1);
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
  kernel(
      machine, "look", tensorcore_mesh(machine, 1),
      [](auto tile, auto bits, auto counts) {
        EXPECT_TRUE(std::isnan(tile.load(7, 127)));
        EXPECT_TRUE(std::isnan(static_cast<float>(bits.load(15, 127))));
        EXPECT_EQ(counts.load(3), std::numeric_limits<std::int32_t>::max());
      },
      Vmem<float>{{8, 128}}, Vmem<bf16>{{16, 128}}, Smem<std::int32_t>{{4}})();
  machine = Machine({.uninitialized = Uninitialized::zero});
  kernel(
      machine, "look", tensorcore_mesh(machine, 1),
      [](auto tile) { EXPECT_EQ(tile.load(7, 127), 0.0f); }, Vmem<float>{{8, 128}})();
}

TEST(TileMachine, WhatOnlyCopiesReach) {
  Machine machine;
  AddOne problem;
  expect_error(ErrorKind::space, {"'x'", "'add_one'", "core 0", "hbm"},
               [&] { problem.run(machine, [](auto x, auto, auto, auto) { x.load(0, 0); }); });
  expect_error(ErrorKind::usage, {"'x'", "constant"}, [&] {
    problem.run(machine, [](auto x, auto, auto tile, auto) { sync_copy(tile, x); });
  });
}

TEST(TileMachine, Bounds) {
  Machine machine;
  AddOne problem;
  const auto slicing = [&](auto slice) {
    return [&machine, &problem, slice] {
      problem.run(machine, [&](auto x, auto, auto, auto) { slice(x); });
    };
  };
  expect_error(ErrorKind::bounds, {"'x'", "dimension 0", "[-8, 0)", "core 0"},
               slicing([](auto x) { x.at(ds(-8, 8), all); }));
  expect_error(ErrorKind::bounds, {"dimension 1", "[64, 192)", "0 to 127"},
               slicing([](auto x) { x.at(all, ds(64, 128)); }));
  expect_error(ErrorKind::bounds, {"dimension 0", "element 8"}, slicing([](auto x) { x.at(8); }));
  // Counted in the slice, not in the array.
  expect_error(ErrorKind::bounds, {"0 to 3"}, slicing([](auto x) { x.at(ds(4, 4)).at(ds(2, 4)); }));
  expect_error(ErrorKind::bounds, {"3 indices"}, slicing([](auto x) { x.at(0, 0, 0); }));
}

TEST(TileMachine, PartsOfTilesAreNotCopied) {
  std::vector<float> data = iota(16 * 256);
  const auto copy = [&](Slice rows, Slice columns, bool check) {
    Machine machine({.check_layout = check});
    auto x = machine.array<float>("x", View::host(data.data(), DType::f32, {16, 256}));
    kernel(
        machine, "part", tensorcore_mesh(machine, 1),
        [&](auto from, auto tile) {
          sync_copy(from.at(rows, columns), tile.at(ds(0, rows.size), ds(0, columns.size)));
          EXPECT_EQ(tile.load(0, 0),
                    data[static_cast<std::size_t>(rows.start * 256 + columns.start)]);
        },
        Vmem<float>{{16, 256}})(x);
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
  kernel(machine, "full", tensorcore_mesh(machine, 1), nothing,
         Vmem<float>{{limit / 4096 * 8, 128}})();
  EXPECT_EQ(machine.report().vmem_high_water_bytes, limit / 4096 * 4096);
  expect_error(ErrorKind::vmem, {"R13", "weights", "sums"}, [&] {
    kernel(machine, "more", tensorcore_mesh(machine, 1), nothing,
           Vmem<float>{{limit / 4096 * 8, 128}, "weights"}, Vmem<float>{{64, 128}, "sums"})();
  });
  expect_error(ErrorKind::smem, {"table"}, [&] {
    kernel(machine, "words", tensorcore_mesh(machine, 1), nothing,
           Smem<std::int32_t>{{machine.options().chip.smem_bytes / 4 + 1}, "table"})();
  });
  // A scope's memory is free again after it.
  kernel(machine, "scopes", tensorcore_mesh(machine, 1), [&] {
    for (int i = 0; i < 3; ++i) {
      run_scoped([](auto tile) { tile.store(1.0f, 0, 0); },
                 Vmem<float>{{limit / 4096 * 8, 128}, "most of it"});
    }
  })();
}

TEST(TileMachine, CopiesThatNobodyWaitsFor) {
  for (const DmaMode dma : {DmaMode::eager, DmaMode::on_wait}) {
    Machine machine({.dma = dma});
    AddOne problem;
    expect_error(ErrorKind::unfinished_dma, {"nobody waits"}, [&] {
      problem.run(machine,
                  [](auto x, auto, auto tile, auto arrived) { async_copy(x, tile, arrived); });
    });
    // What is not there yet is read.
    expect_error(ErrorKind::race, {"'tile'", "copy", "core 0"}, [&] {
      problem.run(machine, [](auto x, auto, auto tile, auto arrived) {
        auto copy = async_copy(x, tile, arrived);
        tile.load(0, 0);
        copy.wait();
      });
    });
    // What is still being read is overwritten.
    expect_error(ErrorKind::race, {"'tile'"}, [&] {
      problem.run(machine, [](auto x, auto out, auto tile, auto arrived) {
        sync_copy(x, tile);
        auto copy = async_copy(tile, out, arrived);
        tile.store(0.0f, 0, 0);
        copy.wait();
      });
    });
    // Two copies, one wait: which of them it was for depends on the mode.
    expect_error(ErrorKind::race, {"copy", "nothing orders"}, [&] {
      problem.run(machine, [](auto x, auto, auto tile, auto arrived) {
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
    });
    // A scope that ends before its copy.
    expect_error(ErrorKind::unfinished_dma, {"'short'"}, [&] {
      problem.run(machine, [](auto x, auto, auto, auto arrived) {
        run_scoped([&](auto tile) { async_copy(x, tile, arrived); },
                   Vmem<float>{{8, 128}, "short"});
      });
    });
  }
}

TEST(TileMachine, TwoCoresShareAnArray) {
  const auto write = [](MachineOptions options, bool apart) {
    Machine machine(options);
    std::vector<float> out(16 * 128, -1.0f);
    auto array = machine.array<float>("out", MutableView::host(out.data(), DType::f32, {16, 128}));
    kernel(
        machine, "both", tensorcore_mesh(machine),
        [&](auto to, auto tile) {
          for (int i = 0; i < 8; ++i) {
            for (int j = 0; j < 128; ++j) tile.store(static_cast<float>(core_index()), i, j);
          }
          sync_copy(tile, to.at(ds(apart ? 8 * core_index() : 0, 8)));
        },
        Vmem<float>{{8, 128}, "tile"})(array);
    EXPECT_EQ(out[0], 0.0f);
    EXPECT_EQ(out[8 * 128], 1.0f);
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
      kernel(
          machine, "pass_on", tensorcore_mesh(machine),
          [&](auto shared, auto tile, auto ready) {
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
          },
          Vmem<float>{{8, 128}, "tile"}, RegularSem{"ready"})(box);
    };
    pass_on(true);
    if (options.seed == 0) {
      expect_error(ErrorKind::race, {"'box'"}, [&] { pass_on(false); });
    }
  });
}

TEST(TileMachine, Deadlocks) {
  Machine machine;
  const auto run = [&](int cores, auto body) {
    kernel(machine, "stuck", tensorcore_mesh(machine, cores), body, RegularSem{"mine"},
           RegularSem{"yours"})();
  };
  expect_error(ErrorKind::deadlock, {"core 0", "'mine'", "2", "holds 1", "'stuck'"}, [&] {
    run(1, [](auto mine, auto) {
      semaphore_signal(mine);
      semaphore_wait(mine, 2);
    });
  });
  expect_error(ErrorKind::deadlock, {"core 0", "'mine'", "core 1", "'yours'"}, [&] {
    run(2, [](auto mine, auto yours) { semaphore_wait(core_index() == 0 ? mine : yours); });
  });
  expect_error(ErrorKind::deadlock, {"barrier", "core 1"}, [&] {
    run(2, [](auto, auto) {
      if (core_index() == 1) barrier();
    });
  });
  expect_error(ErrorKind::semaphore, {"'mine'", "ends with 1"},
               [&] { run(1, [](auto mine, auto) { semaphore_signal(mine); }); });
  // The machine goes on afterwards.
  run(2, [](auto mine, auto) {
    semaphore_signal(mine);
    barrier();
    semaphore_wait(mine);
    barrier();
  });
}

TEST(TileMachine, AnErrorOfOneCoreEndsAll) {
  Machine machine;
  expect_error(ErrorKind::bounds, {"core 1"}, [&] {
    kernel(
        machine, "fails", tensorcore_mesh(machine),
        [](auto tile, auto never) {
          if (core_index() == 1) tile.load(8, 0);
          semaphore_wait(never);
        },
        Vmem<float>{{8, 128}, "tile"}, RegularSem{"never"})();
  });
}

TEST(TileMachine, DataInSmemSteers) {
  for_each_order([](const MachineOptions& options) {
    Machine machine(options);
    std::vector<float> table = iota(64 * 128);
    std::vector<std::int32_t> rows = {5, 2, 2, 7};
    std::vector<float> out(4 * 8 * 128);
    auto x = machine.array<float>("table", View::host(table.data(), DType::f32, {64, 128}));
    auto i = machine.array<std::int32_t>("rows", View::host(rows.data(), DType::i32, {4}));
    auto y = machine.array<float>("out", MutableView::host(out.data(), DType::f32, {32, 128}));
    kernel(
        machine, "gather", tensorcore_mesh(machine, 1),
        [](auto from, auto which, auto to, auto indices, auto tile) {
          sync_copy(which, indices);
          for (int step = 0; step < 4; ++step) {
            sync_copy(from.at(ds(indices.load(step) * 8, 8)), tile);
            sync_copy(tile, to.at(ds(step * 8, 8)));
          }
        },
        Smem<std::int32_t>{{4}, "indices"}, Vmem<float>{{8, 128}, "tile"})(x, i, y);
    for (std::size_t step = 0; step < 4; ++step) {
      for (std::size_t at = 0; at < 8 * 128; ++at) {
        EXPECT_EQ(out[step * 1024 + at], table[static_cast<std::size_t>(rows[step]) * 1024 + at]);
      }
    }
  });
}

TEST(TileMachine, CopiesThatAdd) {
  Machine machine;
  AddOne problem;
  problem.out.assign(8 * 128, 10.0f);
  problem.run(machine, [](auto x, auto out, auto tile, auto arrived) {
    sync_copy(x, tile);
    async_copy(tile, out, arrived, {.add = true}).wait();
  });
  for (std::size_t i = 0; i < problem.out.size(); ++i) EXPECT_EQ(problem.out[i], problem.x[i] + 10);
  expect_error(ErrorKind::usage, {"priority 2"}, [&] {
    problem.run(machine, [](auto x, auto, auto tile, auto arrived) {
      async_copy(x, tile, arrived, {.priority = 2});
    });
  });
}

TEST(TileMachine, ALoopOverAKernelAllocatesNothing) {
  Machine machine;
  std::vector<float> x(8 * 128, 0.0f);
  auto array = machine.array<float>("x", MutableView::host(x.data(), DType::f32, {8, 128}));
  auto add = kernel(
      machine, "add_in_place", tensorcore_mesh(machine, 1),
      [](auto ref, auto tile) {
        sync_copy(ref, tile);
        AddOne::add(tile);
        sync_copy(tile, ref);
      },
      Vmem<float>{{8, 128}, "tile"});
  machine.reset_report();
  for (int i = 0; i < 10; ++i) add(array);
  EXPECT_EQ(x[77], 10.0f);
  EXPECT_EQ(machine.report().copies, 20);
  EXPECT_EQ(machine.report().hbm_allocations, 0);
  EXPECT_EQ(machine.report().bytes_copied, 20 * 4096);
  EXPECT_EQ(machine.freeze(array)[5], 10.0f);
  expect_error(ErrorKind::usage, {"'x'", "frozen"}, [&] { add(array); });
}

TEST(TileMachine, ADryRunHasTheSameCounts) {
  const auto run = [](bool dry) {
    Machine machine({.dry_run = dry});
    AddOne problem;
    problem.run(machine, [](auto x, auto out, auto tile, auto arrived) {
      async_copy(x, tile, arrived).wait();
      AddOne::add(tile);
      sync_copy(tile, out);
    });
    EXPECT_EQ(problem.out[0], dry ? -1.0f : 1.0f);
    return std::tuple{machine.report().copies, machine.report().bytes_copied,
                      machine.report().vmem_high_water_bytes};
  };
  EXPECT_EQ(run(true), run(false));
}

}  // namespace
}  // namespace tessera::tile
