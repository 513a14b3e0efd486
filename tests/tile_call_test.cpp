// SPDX-License-Identifier: Apache-2.0
// Calls: aliases, unusual windows, what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using namespace test;

TEST(TileCall, Aliases) {
  const auto spec = [](bool declared) {
    CallSpec result = same_blocks({4}, BlockSpec::blocks({8, 128}, by_row));
    if (declared) result.input_output_aliases = {{0, 0}};
    return result;
  };
  for_each_order([&](Machine& machine) {
    AddOne problem{32, 128};
    problem.out = problem.x;
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
  Tensor<float> data({3, 24, 128}, iota(3 * 24 * 128)), rows({72, 128}, data.data);
  Machine machine;
  const auto x = data.in(machine);
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
  float sum = 0;
  on_core(machine, "inner", Vmem<float>{{16, 128}, "tile"}, [&](auto from, auto tile) {
    emit_pipeline(
        {.grid = {3},
         .in = {BlockSpec::blocks({bounded_slice(24), 128},
                                  [](auto& g) { return ix(ds(8 * g[0], 8 + 8 * g[0]), 0); })}},
        [&](auto slice) { sum += slice.load(8 * program_id(0) + 7, 0); }, from);
    sync_copy(from.at(ds(0, 16)), tile);
    emit_pipeline(
        {.grid = {2}, .in = {BlockSpec::blocks({8, 128}, by_row)}},
        [&](auto block) { sum += block.load(1, 0); }, tile);
  })(rows.in(machine));
  EXPECT_EQ(sum, (7 + 23 + 39 + 1 + 9) * 128);
}

TEST(TileCall, Refused) {
  AddOne problem{32, 256};
  const auto refused = [&](ErrorKind kind, std::initializer_list<const char*> parts,
                           const BlockSpec& in, const BlockSpec& out,
                           std::vector<Semantics> semantics = {}) {
    Machine machine({.chip = find_chip("v5e")});
    const CallSpec spec{.grid = {4, 2}, .in = {in}, .out = {out}, .semantics = semantics};
    expect_error(kind, parts, [&] { problem.run(machine, spec); });
  };
  const auto good = BlockSpec::blocks({8, 128}, by_row_and_column);
  const auto tiles = [](IndexMap map) { return BlockSpec::blocks({8, 128}, std::move(map)); };
  const auto rule = ErrorKind::block_rule, bounds = ErrorKind::bounds;
  refused(rule, {"R2", "'x'"}, BlockSpec::blocks({5, 128}, by_row_and_column), good);
  refused(rule, {"R14", "'x'"}, BlockSpec::blocks({8, 128}, by_row_and_column, 3), good);
  refused(rule, {"R1", "'out'", "1 numbers"}, good, tiles([](auto& g) { return ix(g[0]); }));
  refused(bounds, {"R12", "'x'", "core 0"}, tiles([](auto& g) { return ix(g[0] + 1, g[1]); }),
          good);
  refused(bounds, {"'x'"}, tiles([](auto& g) { return ix(g[0] - 1, g[1]); }), good);
  refused(ErrorKind::revisit, {"R12", "'out'", "(2, 0)", "core 0"}, good,
          tiles([](auto& g) { return ix(g[0] % 2, g[1]); }));
  refused(rule, {"R12", "parallel"}, good, good, {Semantics::arbitrary, Semantics::parallel});
  BlockSpec part = good;
  part.shape.space = MemorySpace::hbm;
  refused(rule, {"R4", "'x'"}, part, good);
  refused(ErrorKind::space, {"'x'", "copies reach"}, BlockSpec::in_hbm(), good);
  const auto idle = [&](std::initializer_list<const char*> parts, const BlockSpec& in, Shape grid) {
    Machine machine;
    expect_error(rule, parts, [&] {
      call(machine, "idle", {.grid = grid, .in = {in}}, [](auto) {})(problem.in(machine));
    });
  };
  BlockSpec moving = BlockSpec::in_hbm();
  moving.index = by_row_and_column;
  idle({"R4", "'x'"}, moving, {4, 2});
  idle({"R12", "one block is the whole array"}, BlockSpec::blocks({32, 256}, by_row), {4});
  expect_error(ErrorKind::usage, {"constant"}, [&] {
    Machine machine;
    call(machine, "read_only", {.grid = {4, 2}, .out = {good}},
         [](auto out) { out.store(1.0f, 0, 0); })(problem.in(machine));
  });
  Machine small({.chip = find_chip("v3")});
  const auto big = small.empty_ref<float>("big", {8192, 1024});
  expect_error(ErrorKind::vmem, {"R13", "big window"}, [&] {
    const auto block = BlockSpec::blocks({4096, 1024}, by_row);
    call(small, "large", {.grid = {2}, .in = {block}}, [](auto) {})(big);
  });
}

TEST(TileCall, RefsOfTheMachinesOwn) {
  AddOne problem{8, 128};
  Machine machine;
  const auto x = machine.new_ref<float>("x", View::host(problem.x.data(), DType::f32, {8, 128}));
  problem.x[5] = -7;  // the copy does not see it
  EXPECT_EQ(machine.values(x)[5], 5);
  EXPECT_EQ(machine.report().hbm_allocations, 1);
  expect_error(ErrorKind::usage, {"'x'", "argument 0 and 1", "'twice'"},
               [&] { on_core(machine, "twice", [](auto, auto) {})(x, x); });
}

TEST(TileCall, EstimatesStandBesideCounts) {
  AddOne problem{40, 300};
  Machine machine;
  const auto x = problem.in(machine), out = problem.result(machine);
  CallSpec spec = same_blocks({3, 3}, BlockSpec::blocks({16, 128}, by_row_and_column));
  const CostEstimate guess{.flops = 7, .bytes_accessed = 2.0 * 40 * 300 * 4};
  spec.cost_estimate = guess;
  call(machine, "add_one", spec, AddOne::body)(x, out);
  on_core(machine, "no_estimate", [](auto, auto) {})(x, out);
  on_core(machine, "idle", [](auto, auto) {}).with(guess)(x, out);
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
  problem.run(machine, same_blocks({8, 3}, BlockSpec::blocks({5, 100}, by_row_and_column)));
  problem.check();
  const auto four = same_blocks({8, 3}, BlockSpec::blocks({5, 100}, by_row_and_column, 4));
  expect_error(ErrorKind::block_rule, {"R14", "'x'"}, [&] { problem.run(machine, four); });
}

TEST(TileCall, TwoCoresOnOneOutputBlock) {
  // The output does not depend on the split dimension: both cores write it.
  AddOne problem{16, 128};
  Machine machine({.chip = find_chip("v5p")});
  const CallSpec shared{.grid = {2},
                        .in = {BlockSpec::blocks({8, 128}, by_row)},
                        .out = {BlockSpec::blocks({8, 128}, [](auto&) { return ix(0, 0); })},
                        .semantics = {Semantics::parallel}};
  expect_error(ErrorKind::race, {"'out'", "core"}, [&] { problem.run(machine, shared); });
}

TEST(TileCall, ADryRunHasTheSameCopies) {
  const auto report_of = [](bool dry) {
    Machine machine({.dry_run = dry});
    AddOne problem{40, 300};
    problem.run(machine, same_blocks({3, 3}, BlockSpec::blocks({16, 128}, by_row_and_column),
                                     {Semantics::parallel, Semantics::parallel}));
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
