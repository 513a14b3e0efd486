// SPDX-License-Identifier: Apache-2.0
// Calls: aliases, unusual windows, what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/tile_add_one.hpp"

namespace tessera::tile {
namespace {

using test::AddOne;
using test::by_row_and_column;
using test::expect_error;
using test::for_each_order;
using test::iota;

TEST(TileCall, Aliases) {
  const auto spec = [](bool declared) {
    CallSpec result{.grid = {4},
                    .in = {BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g[0], 0); })},
                    .out = {BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g[0], 0); })}};
    if (declared) result.input_output_aliases = {{0, 0}};
    return result;
  };
  for_each_order([&](const MachineOptions& options) {
    AddOne problem{32, 128};
    problem.out = problem.x;
    Machine machine(options);
    const auto array = problem.result(machine);
    call(machine, "in_place", spec(true), AddOne::body)(array, array);
    problem.check();
    expect_error(ErrorKind::usage, {"'out'", "input_output_aliases"},
                 [&] { call(machine, "in_place", spec(false), AddOne::body)(array, array); });
    expect_error(ErrorKind::usage, {"pass the same"}, [&] {
      call(machine, "in_place", spec(true), AddOne::body)(problem.in(machine), array);
    });
    // A step that reads what the one before wrote: fetched before that was there.
    auto chained = spec(true);
    chained.in[0] = BlockSpec::blocks(
        {8, 128}, [](auto& g) { return ix(g[0] > 0 ? g[0] - 1 : std::int64_t{0}, 0); });
    expect_error(ErrorKind::race, {"'out'", "copy"},
                 [&] { call(machine, "chained", chained, AddOne::body)(array, array); });
  });
}

TEST(TileCall, OtherWindows) {
  // Squeezed and element dimensions, bounded slices, blocks of refs that are on chip.
  std::vector<float> data = iota(3 * 24 * 128);
  Machine machine;
  const auto x = machine.array<float>("x", View::host(data.data(), DType::f32, {3, 24, 128}));
  call(machine, "squeezed",
       {.grid = {3, 3},
        .in = {BlockSpec::blocks({squeezed(), 8, 128}, [](auto& g) { return ix(g[0], g[1], 0); }),
               BlockSpec::blocks({element(1), element(16, 8, 8), element(128)},
                                 [](auto& g) { return ix(g[0], 8 * g[1], 0); })}},
       [&](auto block, auto window) {
         const auto first = static_cast<float>((program_id(0) * 24 + program_id(1) * 8) * 128);
         EXPECT_EQ(block.extents(), (Shape{8, 128}));
         EXPECT_EQ(block.load(0, 0), first);
         // 8 rows of padding before the array: the window begins 8 rows earlier.
         EXPECT_EQ(window.load(0, 8, 0), first);
         if (program_id(1) == 0) {
           EXPECT_TRUE(std::isnan(window.load(0, 7, 0)));
         } else {
           EXPECT_EQ(window.load(0, 0, 0), first - 8 * 128);
         }
       })(x, x);
  const auto rows = machine.array<float>("rows", View::host(data.data(), DType::f32, {72, 128}));
  float sum = 0;
  kernel(
      machine, "inner", tensorcore_mesh(machine, 1),
      [&](auto from, auto tile) {
        emit_pipeline(
            {.grid = {3},
             .in = {BlockSpec::blocks({bounded_slice(24), 128},
                                      [](auto& g) { return ix(ds(8 * g[0], 8 + 8 * g[0]), 0); })}},
            [&](auto slice) { sum += slice.load(8 * program_id(0) + 7, 0); }, from);
        sync_copy(from.at(ds(0, 16)), tile);
        emit_pipeline(
            {.grid = {2}, .in = {BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g[0], 0); })}},
            [&](auto block) { sum += block.load(1, 0); }, tile);
      },
      Vmem<float>{{16, 128}, "tile"})(rows);
  EXPECT_EQ(sum, (7 + 23 + 39 + 1 + 9) * 128);
}

TEST(TileCall, Refused) {
  AddOne problem{32, 256};
  const auto run = [&](BlockSpec in, BlockSpec out, Shape grid, std::vector<Semantics> semantics) {
    Machine machine({.chip = find_chip("v5e")});
    const auto x = problem.in(machine);
    call(machine, "add_one",
         {.grid = std::move(grid), .in = {in}, .out = {out}, .semantics = std::move(semantics)},
         AddOne::body)(x, problem.result(machine));
  };
  const auto good = BlockSpec::blocks({8, 128}, by_row_and_column);
  const auto spec = [](BlockDims dims, IndexMap map, int buffers = 2) {
    return BlockSpec::blocks(std::move(dims), std::move(map), buffers);
  };
  expect_error(ErrorKind::block_rule, {"R2", "'x'"}, [&] {
    run(spec({5, 128}, by_row_and_column), good, {4, 2}, {});
  });
  expect_error(ErrorKind::block_rule, {"R14", "'x'"}, [&] {
    run(spec({8, 128}, by_row_and_column, 3), good, {4, 2}, {});
  });
  expect_error(ErrorKind::block_rule, {"R1", "'out'", "1 numbers"}, [&] {
    run(good, spec({8, 128}, [](auto& g) { return ix(g[0]); }), {4, 2}, {});
  });
  expect_error(ErrorKind::bounds, {"R12", "'x'", "core 0"}, [&] {
    run(spec({8, 128}, [](auto& g) { return ix(g[0] + 1, g[1]); }), good, {4, 2}, {});
  });
  expect_error(ErrorKind::bounds, {"'x'"}, [&] {
    run(spec({8, 128}, [](auto& g) { return ix(g[0] - 1, g[1]); }), good, {4, 2}, {});
  });
  expect_error(ErrorKind::revisit, {"R12", "'out'", "(2, 0)", "core 0"}, [&] {
    run(good, spec({8, 128}, [](auto& g) { return ix(g[0] % 2, g[1]); }), {4, 2}, {});
  });
  expect_error(ErrorKind::block_rule, {"R12", "parallel"}, [&] {
    run(good, good, {4, 2}, {Semantics::arbitrary, Semantics::parallel});
  });
  BlockSpec moving = BlockSpec::in_hbm();
  moving.index = by_row_and_column;
  const auto idle = [&](const BlockSpec& in, Shape grid) {
    Machine machine;
    call(machine, "idle", {.grid = std::move(grid), .in = {in}}, [](auto) {})(problem.in(machine));
  };
  expect_error(ErrorKind::block_rule, {"R4", "'x'"}, [&] { idle(moving, {4, 2}); });
  BlockSpec part = good;
  part.shape.space = MemorySpace::hbm;
  expect_error(ErrorKind::block_rule, {"R4", "'x'"}, [&] { run(part, good, {4, 2}, {}); });
  expect_error(ErrorKind::space, {"'x'", "copies reach"}, [&] {
    run(BlockSpec::in_hbm(), good, {1, 1}, {});
  });
  expect_error(ErrorKind::block_rule, {"R12", "one block is the whole array"}, [&] {
    idle(spec({32, 256}, [](auto& g) { return ix(g[0], 0); }), {4});
  });
  expect_error(ErrorKind::usage, {"constant"}, [&] {
    Machine machine;
    call(machine, "read_only", {.grid = {4, 2}, .out = {good}},
         [](auto out) { out.store(1.0f, 0, 0); })(problem.in(machine));
  });
  Machine small({.chip = find_chip("v3")});
  const auto big = small.empty_ref<float>("big", {8192, 1024});
  expect_error(ErrorKind::vmem, {"R13", "big window"}, [&] {
    call(small, "large",
         {.grid = {2}, .in = {spec({4096, 1024}, [](auto& g) { return ix(g[0], 0); })}},
         [](auto) {})(big);
  });
}

TEST(TileCall, RefsOfTheMachinesOwn) {
  AddOne problem{8, 128};
  Machine machine;
  const auto x = machine.new_ref<float>("x", View::host(problem.x.data(), DType::f32, {8, 128}));
  problem.x[5] = -7;  // the copy does not see it
  EXPECT_EQ(machine.values(x)[5], 5);
  EXPECT_EQ(machine.report().hbm_allocations, 1);
  expect_error(ErrorKind::usage, {"'x'", "argument 0 and 1", "'twice'"}, [&] {
    kernel(machine, "twice", tensorcore_mesh(machine, 1), [](auto, auto) {})(x, x);
  });
}

TEST(TileCall, EstimatesStandBesideCounts) {
  AddOne problem{40, 300};
  Machine machine;
  const auto x = problem.in(machine);
  const auto out = problem.result(machine);
  const auto block = BlockSpec::blocks({16, 128}, by_row_and_column);
  const CostEstimate guess{.flops = 7, .bytes_accessed = 2.0 * 40 * 300 * 4};
  call(machine, "add_one", {.grid = {3, 3}, .in = {block}, .out = {block}, .cost_estimate = guess},
       AddOne::body)(x, out);
  kernel(machine, "no_estimate", tensorcore_mesh(machine, 1), [](auto, auto) {})(x, out);
  kernel(machine, "idle", tensorcore_mesh(machine, 1), [](auto, auto) {}).with(guess)(x, out);
  const auto& costs = machine.report().costs;
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].kernel, "add_one");
  EXPECT_EQ(costs[0].estimated.flops, 7);
  EXPECT_EQ(costs[0].counted.flops, 0);
  EXPECT_EQ(costs[0].counted.bytes_accessed, 2.0 * 40 * 384 * 4) << "lanes come in 128s";
  EXPECT_EQ(costs[1].kernel, "idle");
  EXPECT_EQ(costs[1].counted.bytes_accessed, 0);
}

TEST(TileCall, RulesOfTilesCanBeLeftOut) {
  // Blocks of 5 x 100, which no TPU takes; what is not about tiles is still checked.
  AddOne problem{40, 300};
  Machine machine({.check_layout = false});
  const auto x = problem.in(machine);
  const auto out = problem.result(machine);
  const auto block = BlockSpec::blocks({5, 100}, by_row_and_column);
  call(machine, "add_one", {.grid = {8, 3}, .in = {block}, .out = {block}}, AddOne::body)(x, out);
  problem.check();
  const auto four = BlockSpec::blocks({5, 100}, by_row_and_column, 4);
  expect_error(ErrorKind::block_rule, {"R14"}, [&] {
    call(machine, "add_one", {.grid = {8, 3}, .in = {four}, .out = {block}}, AddOne::body)(x, out);
  });
}

TEST(TileCall, TwoCoresOnOneOutputBlock) {
  // The output does not depend on the split dimension: both cores write it.
  AddOne problem{16, 128};
  Machine machine({.chip = find_chip("v5p")});
  const auto x = problem.in(machine);
  expect_error(ErrorKind::race, {"'out'", "core"}, [&] {
    call(machine, "shared",
         {.grid = {2},
          .in = {BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g[0], 0); })},
          .out = {BlockSpec::blocks({8, 128}, [](auto&) { return ix(0, 0); })},
          .semantics = {Semantics::parallel}},
         AddOne::body)(x, problem.result(machine));
  });
}

TEST(TileCall, ADryRunHasTheSameCopies) {
  const auto report_of = [](bool dry) {
    MachineOptions options;
    options.dry_run = dry;
    Machine machine(options);
    AddOne problem{40, 300};
    const auto x = problem.in(machine);
    call(machine, "add_one",
         {.grid = {3, 3},
          .in = {BlockSpec::blocks({16, 128}, by_row_and_column)},
          .out = {BlockSpec::blocks({16, 128}, by_row_and_column)},
          .semantics = {Semantics::parallel, Semantics::parallel}},
         AddOne::body)(x, problem.result(machine));
    return machine.report();
  };
  const Report wet = report_of(false);
  const Report dry = report_of(true);
  EXPECT_EQ(wet.copies, dry.copies);
  EXPECT_EQ(wet.vmem_high_water_bytes, dry.vmem_high_water_bytes);
  ASSERT_EQ(wet.buffers.size(), dry.buffers.size());
  for (std::size_t i = 0; i < wet.buffers.size(); ++i) {
    EXPECT_EQ(wet.buffers[i].bytes_read, dry.buffers[i].bytes_read);
    EXPECT_EQ(wet.buffers[i].bytes_written, dry.buffers[i].bytes_written);
  }
}

}  // namespace
}  // namespace tessera::tile
