// SPDX-License-Identifier: Apache-2.0
// What steers a kernel (semaphores that it polls, integers in SMEM, prefetched indices), and that
// messages say which kernel and core it was.
#include <gtest/gtest.h>

#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using namespace test;

TEST(TilePolls, AnotherCoreSignals) {
  for_each_order([](Machine& machine) {
    AddOne problem{8, 128};
    int seen = 0;
    launch(machine, "polls", tensorcore_mesh(machine, 2), Vmem<float>{{8, 128}, "tile"},
           RegularSem{"ready"}, DmaSem{"arrived"},
           [&](auto x, auto tile, auto ready, auto arrived) {
             if (core_index() == 0) {
               while (semaphore_read(ready) < 2) {
               }
               seen = static_cast<int>(semaphore_read(ready));
               semaphore_wait(ready, 2);
               // A copy of its own, which nobody waits for until it has come.
               auto copy = async_copy(x, tile, arrived);
               while (semaphore_read(arrived) < 8 * 128 * 4) {
               }
               copy.wait();
               EXPECT_EQ(tile.load(1, 0), 128.0f);
             } else {
               for (int i = 0; i < 2; ++i) {
                 sync_copy(x, tile);
                 semaphore_signal(ready, 1, Target{.core = 0});
               }
             }
           })(problem.in(machine));
    EXPECT_EQ(seen, 2);
  });
}

// Each waits for the other's signal by polling, in turns.
TEST(TilePolls, PingPong) {
  for_each_order([](Machine& machine) {
    int turns = 0;
    launch(machine, "ping pong", tensorcore_mesh(machine, 2), RegularSem{"ball"}, [&](auto ball) {
      const int other = 1 - core_index();
      if (core_index() == 0) semaphore_signal(ball);
      for (int i = 0; i < 20; ++i) {
        while (semaphore_read(ball) == 0) {
        }
        semaphore_wait(ball);
        ++turns;
        if (core_index() == 0 || i < 19) semaphore_signal(ball, 1, Target{.core = other});
      }
    })();
    EXPECT_EQ(turns, 40);
  });
}

TEST(TilePolls, NobodySignals) {
  for_each_order([](Machine& machine) {
    const auto stuck = [&](int cores, auto body) {
      launch(machine, "stuck", tensorcore_mesh(machine, cores), RegularSem{"never"},
             RegularSem{"neither"}, body)();
    };
    const auto poll = [](const Semaphore& semaphore) {
      while (semaphore_read(semaphore) == 0) {
      }
    };
    const auto refused = [&](std::initializer_list<const char*> parts, int cores, auto body) {
      expect_error(ErrorKind::deadlock, parts, [&] { stuck(cores, body); });
    };
    refused({"core 0 waits for", "'never' of core 0", "'stuck'", "at 0"}, 1,
            [&](auto never, auto) { poll(never); });
    // All of them are named, whether they poll or wait.
    refused({"core 0 waits for semaphore 'never' of core 0 in kernel 'stuck'", "semaphore_read",
             "core 1 waits for semaphore 'neither' of core 1 in kernel 'stuck'"},
            2, [&](auto never, auto neither) { poll(core_index() == 0 ? never : neither); });
    refused({"core 0 waits for semaphore 'never' of core 0", "semaphore_read",
             "core 1 waits for 3 of semaphore 'neither' of core 1"},
            2, [&](auto never, auto neither) {
              if (core_index() == 0) return poll(never);
              semaphore_wait(neither, 3);
            });
    // The other has ended.
    refused({"core 1 waits for semaphore 'never' of core 1"}, 2, [&](auto never, auto) {
      if (core_index() == 1) poll(never);
    });
  });
}

// Who gives up by itself is no deadlock, also when nobody signals.
TEST(TilePolls, LoopsThatEnd) {
  for_each_order([](Machine& machine) {
    int polls = 0;
    launch(machine, "gives up", tensorcore_mesh(machine, 2), RegularSem{"ready"}, [&](auto ready) {
      const bool first = core_index() == 0;
      // The second sees nothing until the first has given up.
      for (int i = 0; first ? i < 1000 : semaphore_read(ready) == 0; ++i) {
        if (first) polls += semaphore_read(ready) == 0 ? 1 : 0;
      }
      if (first) return semaphore_signal(ready, 1, Target{.core = 1});
      semaphore_wait(ready);
    })();
    EXPECT_EQ(polls, 1000);
  });
}

/// Copies row `row[0]` of x.
void steered(Machine& machine, const Array<std::int32_t>& row) {
  const auto x = machine.empty_ref<float>("x", {16, 128});
  on_core(machine, "steered", Vmem<float>{{8, 128}, "tile"}, Smem<std::int32_t>{{1}, "word"},
          [](auto from, auto which, auto tile, auto word) {
            sync_copy(which, word);
            sync_copy(from.at(ds(8 * word.load(0), 8)), tile);
          })(x, row);
}

TEST(TileDryRun, IntegersThatSteer) {
  const std::vector<std::int32_t> one = {1};
  const View view = View::host(one.data(), DType::i32, {1});
  for (const Uninitialized how : {Uninitialized::nan, Uninitialized::zero}) {
    Machine dry({.uninitialized = how, .dry_run = true});
    steered(dry, dry.array<std::int32_t>("row", view));
    EXPECT_EQ(dry.report().buffer("x").bytes_read, 8 * 128 * 4);
    // What the caller gave is known, and what no kernel ever wrote is not.
    const auto given = dry.new_ref<std::int32_t>("given", view);
    steered(dry, given);
    EXPECT_TRUE(dry.values(given).empty());
    const auto refused = {"'word'", "'steered'", "core 0", "dry run", "Machine::array"};
    expect_error(ErrorKind::usage, refused,
                 [&] { steered(dry, dry.empty_ref<std::int32_t>("empty", {1})); });
    // Nor what a kernel wrote that has no values.
    const auto write = [&](bool known) {
      on_core(dry, "writes", Vmem<std::int32_t>{{1}, "tile"}, Smem<std::int32_t>{{1}, "word"},
              [&](auto to, auto tile, auto word) {
                if (!known) return sync_copy(tile, to);
                word.store(0, 0);
                sync_copy(word, to);
              })(given);
    };
    write(false);
    expect_error(ErrorKind::usage, refused, [&] { steered(dry, given); });
    write(true);
    steered(dry, given);
  }
  // The same runs with values.
  Machine real;
  steered(real, real.new_ref<std::int32_t>("given", view));
  EXPECT_EQ(real.report().buffer("x").bytes_read, 8 * 128 * 4);
}

// In VMEM nothing steers, and a dry run has no values to begin with.
TEST(TileDryRun, IntegersInVmem) {
  Machine dry({.dry_run = true});
  on_core(dry, "reads", Vmem<std::int32_t>{{1024}, "tile"}, [](auto labels, auto tile) {
    sync_copy(labels, tile);
    EXPECT_EQ(tile.load(3), 0);
  })(dry.empty_ref<std::int32_t>("labels", {1024}));
}

TEST(TileDryRun, FloatsOfSmemAreZero) {
  Machine dry({.dry_run = true});
  on_core(dry, "reads", Smem<float>{{1}, "word"}, [](auto scale, auto word) {
    sync_copy(scale, word);
    EXPECT_EQ(word.load(0), 0.0f);
    word.store(2.0f, 0);
    EXPECT_EQ(word.load(0), 2.0f);
  })(dry.empty_ref<float>("scale", {1}));
}

// A block is fetched steps before it is used: the message has both points of the grid.
TEST(TileMessages, BadIndicesOfLaterSteps) {
  for_each_order([](Machine& machine) {
    AddOne problem{32, 128};
    const auto x = problem.in(machine), out = problem.result(machine);
    const auto add = [&](std::vector<std::int32_t> table, int buffers, std::int64_t ahead) {
      Tensor<std::int32_t> rows({4}, std::move(table));
      const CallSpec spec{
          .grid = {4},
          .in = {BlockSpec::blocks(
              {8, 128}, [=](const GridPoint& g) { return ix(g.prefetched(0, g[0] + ahead), 0); },
              buffers)},
          .out = {BlockSpec::blocks({8, 128}, by_row)},
          .num_scalar_prefetch = 1};
      call(machine, "add", spec, [](auto, auto, auto) {})(rows.in(machine, "rows"), x, out);
    };
    add({3, 2, 1, 0}, 2, 0);
    const auto refused = [&](std::initializer_list<const char*> parts,
                             std::vector<std::int32_t> table, int buffers, std::int64_t ahead) {
      expect_error(ErrorKind::bounds, parts, [&] { add(std::move(table), buffers, ahead); });
    };
    refused({"R12", "'x'", "'add'", "core 0 at grid point (1), for the block of grid point (2)"},
            {0, 1, 4, 3}, 2, 0);
    // With one buffer it is fetched where it is used.
    refused({"R12", "'x'", "core 0 at grid point (2))"}, {0, 1, 4, 3}, 1, 0);
    // Before the first step.
    refused({"R12", "'x'", "core 0, for the block of grid point (0)"}, {4, 1, 2, 3}, 2, 0);
    // An index map that reads behind its table.
    refused({"'rows prefetched'", "element 4", "core 0 at grid point (2)",
             "(index map of 'x', for the block of grid point (3))"},
            {0, 1, 2, 3}, 2, 1);
  });
}

TEST(TileMessages, RacesNameTheKernel) {
  for_each_order([](Machine& machine) {
    AddOne problem{8, 128};
    expect_error(ErrorKind::race, {"'tile' of kernel 'forgets'", "core 0"}, [&] {
      on_core(machine, "forgets", Vmem<float>{{8, 128}, "tile"}, DmaSem{"arrived"},
              [](auto x, auto tile, auto arrived) {
                auto copy = async_copy(x, tile, arrived);
                tile.load(0, 0);
                copy.wait();
              })(problem.in(machine));
    });
  });
}

TEST(TileMessages, RulesNameTheKernel) {
  Machine machine;
  AddOne problem{64, 256};
  const auto x = problem.in(machine);
  const auto zeros = [](const GridPoint&) { return ix(0, 0); };
  const auto refused = [](const char* rule, auto use) {
    const auto kind = rule == std::string("R13") ? ErrorKind::vmem : ErrorKind::block_rule;
    expect_error(kind, {rule, "'x", "of kernel 'breaks', core 0"}, use);
  };
  const auto in_call = [&](const BlockSpec& spec) {
    call(machine, "breaks", {.grid = {1}, .in = {spec}}, [](auto) {})(x);
  };
  refused("R2", [&] { in_call(BlockSpec::blocks({8, 100}, zeros)); });
  refused("R14", [&] { in_call(BlockSpec::blocks({8, 128}, zeros, 3)); });
  refused("R4", [&] {
    BlockSpec spec = BlockSpec::blocks({8, 128}, zeros);
    spec.shape.space = MemorySpace::hbm;
    in_call(spec);
  });
  refused("R5", [&] {
    on_core(machine, "breaks", [&](auto from) {
      emit_pipeline(
          {.grid = {1}, .in = {BlockSpec::blocks({8, 100}, zeros)}}, [](auto) {}, from);
    })(x);
  });
  refused("R13", [&] {
    on_core(machine, "breaks", Vmem<float>{{1 << 24, 1 << 24}, "x scratch"}, [](auto, auto) {})(x);
  });
  // Also a grid that no cores can share.
  expect_error(
      ErrorKind::block_rule, {"R12", "no parallel dimension", "of kernel 'breaks', core"}, [&] {
        kernel(machine, "breaks", tensorcore_mesh(machine, 2), [&](auto from) {
          emit_pipeline(
              {.grid = {1}, .in = {BlockSpec::blocks({8, 128}, zeros)}, .over_cores = true},
              [](auto) {}, from);
        })(x);
      });
}

}  // namespace
}  // namespace tessera::tile
