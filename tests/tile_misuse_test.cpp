// SPDX-License-Identifier: Apache-2.0
// What a program does with a machine's objects that it must not: named, in place of a crash.
#include <gtest/gtest.h>

#include <limits>

#include "tessera/tile/ops.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using namespace test;

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();

Array<float> eight_rows(Machine& machine) { return machine.empty_ref<float>("x", {8, 128}); }

TEST(TileMisuse, AMachineThatWasMovedFrom) {
  Machine first;
  const auto x = eight_rows(first);
  Machine second(std::move(first));
  on_core(second, "goes on", Vmem<float>{{8, 128}, "tile"},
          [](auto tile) { tile.store(1.0f, 0, 0); })();
  EXPECT_EQ(second.report().kernels, 1);
  EXPECT_EQ(second.values(x).size(), 8u * 128);
  const auto refused = [](auto use) { expect_error(ErrorKind::usage, {"moved from"}, use); };
  refused([&] { first.options(); });
  refused([&] { first.report(); });
  refused([&] { first.reset_report(); });
  refused([&] { eight_rows(first); });
  refused([&] { first.values(x); });
  refused([&] { first.freeze(x); });
  refused([&] { tensorcore_mesh(first); });
  refused([&] { kernel(first, "copy", Mesh{}, [](auto) {})(x); });
}

TEST(TileMisuse, NullPointers) {
  const float* no_values = nullptr;
  float* no_target = nullptr;
  const View view = View::host(no_values, DType::f32, {8, 128});
  const MutableView target = MutableView::host(no_target, DType::f32, {8, 128});
  Machine machine;
  const auto parts = {"'x'", "1024 elements", "null pointer"};
  expect_error(ErrorKind::usage, parts, [&] { machine.array<float>("x", view); });
  expect_error(ErrorKind::usage, parts, [&] { machine.array<float>("x", target); });
  expect_error(ErrorKind::usage, parts, [&] { machine.new_ref<float>("x", view); });
  // A dry run reads none.
  Machine dry({.dry_run = true});
  dry.array<float>("x", view);
  dry.new_ref<float>("y", view);
}

TEST(TileMisuse, RefsWithoutAValue) {
  const Ref<float> none;
  const auto outside = {"made without a value"};
  expect_error(ErrorKind::usage, outside, [&] { none.name(); });
  expect_error(ErrorKind::usage, outside, [&] { none.extents(); });
  expect_error(ErrorKind::usage, outside, [&] { none.at(0); });
  expect_error(ErrorKind::usage, outside, [&] { none.load(); });
  for_each_order([&](Machine& machine) {
    const auto refused = [&](std::initializer_list<const char*> parts, auto use) {
      expect_error(ErrorKind::usage, parts, [&] {
        on_core(machine, "nothing", Vmem<float>{{8, 128}, "tile"}, DmaSem{"arrived"}, use)();
      });
    };
    const auto inside = {"names nothing", "'nothing'", "core 0"};
    refused(inside, [&](auto tile, auto) { sync_copy(none, tile); });
    refused(inside, [&](auto tile, auto arrived) { make_async_copy(tile, none, arrived); });
    refused(inside, [&](auto, auto) {
      emit_pipeline(
          {.grid = {1}, .in = {BlockSpec::in_hbm()}}, [](auto) {}, none);
    });
    refused({"made without a value"}, [&](auto, auto) { none.store(1.0f); });
    refused({"names nothing"}, [&](auto, auto) { none.load(); });
    refused({"no semaphore", "'x' -> 'tile'", "made without a value"}, [&](auto tile, auto) {
      run_scoped([&](auto x) { make_async_copy(x, tile, DmaSemaphore()); },
                 Vmem<float>{{8, 128}, "x"});
    });
    refused({"no semaphore", "semaphore_signal"}, [](auto, auto) { semaphore_signal({}); });
    refused({"no semaphore", "semaphore_wait"}, [](auto, auto) { semaphore_wait({}); });
    const auto nothing = {"names nothing", "made without a value"};
    refused(nothing, [&](auto, auto) { fill(none, 0); });
    refused(nothing, [&](auto tile, auto) { assign(tile, none); });
    refused(nothing, [&](auto tile, auto) { dot(none, tile, tile); });
    refused(nothing, [&](auto tile, auto) { dot(tile, tile, none); });
    refused(nothing, [&](auto tile, auto) { reduce_sum(tile, none, 1); });
    refused(nothing, [&](auto tile, auto) { transpose(none, tile); });
    refused({"a Copy that is none", "core 0"}, [](auto, auto) { Copy().start(); });
    refused({"a Copy that is none", "core 0"}, [](auto, auto) { Copy().wait(); });
  });
}

TEST(TileMisuse, ArraysOfAnotherMachine) {
  Machine one;
  Machine other;
  const auto x = eight_rows(other);
  expect_error(ErrorKind::usage, {"'x'", "'copy'", "another machine"},
               [&] { on_core(one, "copy", [](auto) {})(x); });
  // One that a body kept.
  Ref<float> kept;
  on_core(other, "keep", [&](auto from) { kept = from; })(x);
  const auto copy = [&] {
    on_core(one, "copy", Vmem<float>{{8, 128}, "tile"},
            [&](auto tile) { sync_copy(kept, tile); })();
  };
  expect_error(ErrorKind::usage, {"'x'", "'copy'", "core 0", "another machine"}, copy);
  expect_error(ErrorKind::usage, {"'x'", "another machine"}, [&] { one.values(x); });
  expect_error(ErrorKind::usage, {"'x'", "another machine"}, [&] { one.freeze(x); });
  // Also when that machine is no more.
  {
    Machine gone;
    on_core(gone, "keep", [&](auto from) { kept = from; })(eight_rows(gone));
  }
  expect_error(ErrorKind::usage, {"'x'", "another machine"}, copy);
}

TEST(TileMisuse, SlicesBeyondAllNumbers) {
  Machine machine;
  on_core(machine, "slices", Vmem<float>{{8, 128}, "tile"}, [](auto tile) {
    const auto refused = [&](std::initializer_list<const char*> parts, auto index) {
      expect_error(ErrorKind::bounds, parts, [&] { tile.at(index, all); });
    };
    refused({"'tile'", "core 0", "0 to 7", "[8, 9223372036854775807)"}, ds(8, most - 8));
    refused({"0 to 7", "ds(8, 9223372036854775807)"}, ds(8, most));
    refused({"ds(9223372036854775807, 1)"}, ds(most, 1));
    refused({"[-9223372036854775808, -9223372036854775800)"}, ds(least, 8));
    refused({"ds(8, -9223372036854775808)"}, ds(8, least));
    // Of a part, whose start is added.
    expect_error(ErrorKind::bounds, {"0 to 3", "ds(2, 9223372036854775807)"},
                 [&] { tile.at(ds(4, 4), all).at(ds(2, most), all); });
  })();
}

TEST(TileMisuse, ExtentsBeyondAllMemory) {
  for (const bool dry_run : {false, true}) {
    Machine machine({.dry_run = dry_run});
    const auto refused = [](auto use) {
      expect_error(ErrorKind::usage, {"'much'", "9223372036854775807", "2^50 bytes"}, use);
    };
    const auto nothing = [](auto) {};
    refused([&] { on_core(machine, "k", Vmem<float>{{most, most}, "much"}, nothing)(); });
    refused([&] { on_core(machine, "k", Smem<float>{{most}, "much"}, nothing)(); });
    refused([&] { machine.empty_ref<float>("much", {most, 2}); });
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // A sanitizer's operator new ends the process instead. No address has so many bits.
  tessera::test::expect_error(ErrorCode::out_of_memory, {"'much' [140737488355328, 2]"}, [] {
    Machine().empty_ref<float>("much", {std::int64_t{1} << 47, 2});
  });
#endif
}

/// What was scratch of a kernel that has ended, or of a run_scoped.
struct Kept {
  Ref<float> tile{};
  Ref<std::int32_t> word{};
  Semaphore signals{};
  DmaSemaphore arrived{};
  Copy copy{};

  void keep(Machine& machine, bool scoped) {
    const auto all_of_it = [&](auto vmem, auto smem, auto regular, auto dma) {
      tile = vmem;
      word = smem;
      signals = regular;
      arrived = dma;
      copy = make_async_copy(vmem.at(ds(0, 8)), vmem.at(ds(8, 8)), dma);
    };
    const auto run = [&](auto... scratch) {
      if (!scoped) return on_core(machine, "first", scratch..., all_of_it)();
      on_core(machine, "first", [&] { run_scoped(all_of_it, scratch...); })();
    };
    run(Vmem<float>{{16, 128}, "tile"}, Smem<std::int32_t>{{1}, "word"}, RegularSem{"signals"},
        DmaSem{"arrived"});
  }
};

TEST(TileMisuse, WhatIsKeptEndsWithItsKernel) {
  for_each_order([](const MachineOptions& options) {
    for (const bool scoped : {false, true}) {
      Machine machine(options);
      Kept kept;
      kept.keep(machine, scoped);
      const char* ended = scoped ? "ended with its run_scoped" : "ended with kernel 'first'";
      const auto refused = [&](const char* name, auto use) {
        expect_error(ErrorKind::usage, {name, ended, "'second'", "core 0"}, [&] {
          on_core(machine, "second", Vmem<float>{{16, 128}, "mine"}, DmaSem{"done"}, use)();
        });
      };
      EXPECT_EQ(kept.tile.name(), "tile");
      EXPECT_EQ(kept.tile.extents(), (Shape{16, 128}));
      refused("'tile'", [&](auto, auto) { kept.tile.load(0, 0); });
      refused("'tile'", [&](auto, auto) { kept.tile.at(0).store(1.0f, 0); });
      refused("'tile'", [&](auto mine, auto) { sync_copy(kept.tile, mine); });
      refused("'tile'", [&](auto mine, auto) { sync_copy(mine, kept.tile); });
      refused("'word'", [&](auto, auto) { kept.word.load(0); });
      refused("'signals'", [&](auto, auto) { semaphore_signal(kept.signals); });
      refused("'signals'", [&](auto, auto) { semaphore_wait(kept.signals); });
      refused("'signals'", [&](auto, auto) { semaphore_read(kept.signals); });
      refused("'arrived'", [&](auto mine, auto) { async_copy(mine, mine, kept.arrived); });
      refused("'arrived'", [&](auto, auto) { Copy(kept.copy).start(); });
      refused("'arrived'", [&](auto, auto) { Copy(kept.copy).wait(); });
    }
  });
}

// An array's ref may be kept for as long as the array is in use.
TEST(TileMisuse, RefsOfArraysAreKeptUntilTheyAreFrozen) {
  Machine machine;
  AddOne problem{8, 128};
  const auto x = problem.in(machine);
  Ref<float> kept;
  on_core(machine, "keep", [&](auto from) { kept = from; })(x);
  const auto read = [&] {
    on_core(machine, "read", Vmem<float>{{8, 128}, "tile"}, [&](auto tile) {
      sync_copy(kept, tile);
      EXPECT_EQ(tile.load(1, 2), 130.0f);
    })();
  };
  read();
  machine.freeze(x);
  expect_error(ErrorKind::usage, {"'x'", "'read'", "core 0", "frozen"}, read);
}

TEST(TileMisuse, NegativeSignals) {
  for_each_order([](Machine& machine) {
    expect_error(ErrorKind::usage, {"'ready'", "'takes'", "core 0", "semaphore_signal of -1"}, [&] {
      on_core(machine, "takes", RegularSem{"ready"}, [](auto ready) {
        semaphore_signal(ready, 2);
        semaphore_signal(ready, -1);
        semaphore_wait(ready);
      })();
    });
    expect_error(ErrorKind::semaphore, {"'ready'", "9223372036854775807 to 1", "64 bits"}, [&] {
      on_core(machine, "overflows", RegularSem{"ready"}, [](auto ready) {
        semaphore_signal(ready);
        semaphore_signal(ready, most);
      })();
    });
  });
}

// Blocks whose first element is no 64-bit number, and grids of more steps than that.
TEST(TileMisuse, IndicesBeyondAllNumbers) {
  for_each_order([](Machine& machine) {
    AddOne problem{16, 128};
    const auto x = problem.in(machine);
    const auto beyond = [&](BlockDims dims, BlockIndex index, const char* what) {
      const auto in = BlockSpec::blocks(dims, [=](auto&) { return index; });
      expect_error(ErrorKind::bounds, {"R12", "'x' [16, 128]", "'add'", "core 0", what},
                   [&] { call(machine, "add", {.grid = {1}, .in = {in}}, [](auto) {})(x); });
    };
    // 2^61 blocks of 8 rows are 2^64 rows: 0 without the highest bit.
    beyond({8, 128}, ix(std::int64_t{1} << 61, 0), "2305843009213693952, beyond all blocks of 8");
    beyond({8, 128}, ix(-(std::int64_t{1} << 61), 0), "-2305843009213693952, beyond");
    beyond({8, 128}, ix(most, 0), "9223372036854775807, beyond");
    beyond({8, 128}, ix(least, 0), "-9223372036854775808, beyond");
    beyond({element(8), element(128)}, ix(most, 0), "9223372036854775807, beyond");
    beyond({element(8, 8), element(128)}, ix(least, 0), "-9223372036854775808, beyond");
    // A ref on chip is cut where it is.
    expect_error(ErrorKind::bounds, {"R12", "'tile'", "2305843009213693952"}, [&] {
      on_core(machine, "cuts", Vmem<float>{{16, 128}, "tile"}, [](auto tile) {
        const auto to = [](const GridPoint&) { return ix(std::int64_t{1} << 61, 0); };
        emit_pipeline(
            {.grid = {1}, .in = {BlockSpec::blocks({8, 128}, to)}}, [](auto) {}, tile);
      })();
    });
    const std::int64_t half = std::int64_t{1} << 32;
    const CallSpec endless{.grid = {half, half}, .out = {BlockSpec::blocks({8, 128}, {})}};
    expect_error(ErrorKind::block_rule, {"R12", "4294967296, 4294967296", "'add'", "64 bits"}, [&] {
      call(machine, "add", endless, [](auto) { FAIL(); })(problem.result(machine));
    });
  });
}

TEST(TileMisuse, SubcoresHaveNoMxu) {
  Machine machine({.chip = find_chip("v5p")});
  const auto multiply = [&](Mesh mesh) {
    launch(machine, "multiply", mesh, Vmem<float>{{8, 128}, "a"}, Vmem<float>{{128, 128}, "b"},
           Vmem<float>{{8, 128}, "out"}, [](auto a, auto b, auto out) { dot(a, b, out); })();
  };
  multiply(tensorcore_mesh(machine, 1));
  expect_error(ErrorKind::usage, {"dot", "no MXU", "'out'", "'multiply'", "subcore 0"},
               [&] { multiply(vector_subcore_mesh(machine, 1, 1)); });
}

TEST(TileMisuse, TwoRowsToOnePlace) {
  for_each_order({.chip = find_chip("v5p")}, [](const MachineOptions& options) {
    const auto scatter = [&](std::int32_t last, bool add) {
      Machine machine(options);
      const auto out = eight_rows(machine);
      launch(machine, "scatter", vector_subcore_mesh(machine, 1, 1),
             Vmem<std::int32_t>{{3}, "indices"}, Vmem<float>{{3, 128}, "rows"},
             [&](auto to, auto indices, auto rows) {
               const std::int32_t where[] = {5, 2, last};
               for (int i = 0; i < 3; ++i) indices.store(where[i], i);
               sync_scatter(rows, to, indices, {.add = add});
             })(out);
    };
    scatter(4, false);
    scatter(5, true);
    expect_error(ErrorKind::race,
                 {"'rows' -> 'x'", "'scatter'", "subcore 0", "indices 0 and 2 are both 5"},
                 [&] { scatter(5, false); });
  });
}

}  // namespace
}  // namespace tessera::tile
