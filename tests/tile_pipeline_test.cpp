// SPDX-License-Identifier: Apache-2.0
// Pipelines: which block is where at each step, in which order copies start and are waited for, and
// what ends one that is wrong.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using namespace test;

/// The events of one core in JAX's order, "+x8:1" a copy of the block at row 8 into slot 1, "?x1"
/// waited for, "!" the body, "-o8:1" and "=o1" the same of outputs.
std::string trace_of(std::int64_t steps, int in_buffers, int out_buffers, bool lookahead,
                     std::int64_t repeat) {
  std::string trace;
  MachineOptions options;
  options.recorder = [&](const ScheduleEvent& event) {
    using Kind = ScheduleEvent::Kind;
    if (event.kind == Kind::step) return;
    const std::string slot(1, event.semaphore.back());
    const bool input = event.semaphore.front() == 'x';
    if (event.kind == Kind::wait) {
      trace += (input ? " ?x" : " =o") + slot;
    } else {
      const auto start = input ? event.from_start[0] : event.to_start[0];
      trace += (input ? " +x" : " -o") + std::to_string(start) + ":" + slot;
    }
  };
  Machine machine(options);
  const auto x = machine.empty_ref<float>("x", {8 * steps, 128});
  const auto o = machine.empty_ref<float>("o", {8 * steps, 128});
  on_core(machine, "trace", [&](auto x_ref, auto o_ref) {
    emit_pipeline(
        {.grid = {steps},
         .in = {BlockSpec::blocks(
             {8, 128}, [&](auto& g) { return ix(g[0] / repeat, 0); }, in_buffers, lookahead)},
         .out = {BlockSpec::blocks({8, 128}, by_row, out_buffers)}},
        [&](auto, auto) { trace += " !"; }, x_ref, o_ref);
  })(x, o);
  return trace.substr(1);
}

TEST(TilePipeline, OrderOfJaxScheduler) {
  EXPECT_EQ(trace_of(5, 1, 2, false, 1),
            "+x0:0 ?x0 ! -o0:0 +x8:0 ?x0 ! -o8:1 =o0 +x16:0 ?x0 ! -o16:0 =o1 +x24:0 ?x0 ! -o24:1 "
            "=o0 +x32:0 ?x0 ! -o32:0 =o1 =o0");
  const char* two =
      "+x0:0 +x8:1 ?x0 ! -o0:0 +x16:0 ?x1 ! -o8:1 =o0 +x24:1 ?x0 ! -o16:0 =o1 +x32:0 ?x1 ! -o24:1 "
      "=o0 ?x0 ! -o32:0 =o1 =o0";
  EXPECT_EQ(trace_of(5, 2, 2, false, 1), two);
  EXPECT_EQ(trace_of(5, 2, 2, true, 1), two);
  EXPECT_EQ(trace_of(5, 3, 2, false, 1),
            "+x0:0 +x8:1 +x16:2 ?x0 ! -o0:0 +x24:0 ?x1 ! -o8:1 =o0 +x32:1 ?x2 ! -o16:0 =o1 ?x0 ! "
            "-o24:1 =o0 ?x1 ! -o32:0 =o1 =o0");
  EXPECT_EQ(trace_of(5, 2, 1, false, 1),
            "+x0:0 +x8:1 ?x0 ! -o0:0 =o0 +x16:0 ?x1 ! -o8:0 =o0 +x24:1 ?x0 ! -o16:0 =o0 +x32:0 ?x1 "
            "! -o24:0 =o0 ?x0 ! -o32:0 =o0");
  EXPECT_EQ(trace_of(6, 1, 2, false, 2),
            "+x0:0 ?x0 ! -o0:0 ! -o8:1 =o0 +x8:0 ?x0 ! -o16:0 =o1 ! -o24:1 =o0 +x16:0 ?x0 ! -o32:0 "
            "=o1 ! -o40:1 =o0 =o1");
  EXPECT_EQ(trace_of(6, 2, 2, false, 2),
            "+x0:0 ?x0 ! -o0:0 +x8:1 ! -o8:1 =o0 ?x1 ! -o16:0 =o1 +x16:0 ! -o24:1 =o0 ?x0 ! -o32:0 "
            "=o1 ! -o40:1 =o0 =o1");
  EXPECT_EQ(trace_of(6, 4, 2, false, 2),
            "+x0:0 +x8:1 ?x0 ! -o0:0 +x16:2 ! -o8:1 =o0 ?x1 ! -o16:0 =o1 ! -o24:1 =o0 ?x2 ! -o32:0 "
            "=o1 ! -o40:1 =o0 =o1");
  EXPECT_EQ(trace_of(6, 2, 2, true, 2),
            "+x0:0 +x8:1 ?x0 ! -o0:0 ! -o8:1 =o0 +x16:0 ?x1 ! -o16:0 =o1 ! -o24:1 =o0 ?x0 ! -o32:0 "
            "=o1 ! -o40:1 =o0 =o1");
  EXPECT_EQ(trace_of(6, 4, 2, true, 2),
            "+x0:0 +x8:1 +x16:2 ?x0 ! -o0:0 ! -o8:1 =o0 ?x1 ! -o16:0 =o1 ! -o24:1 =o0 ?x2 ! -o32:0 "
            "=o1 ! -o40:1 =o0 =o1");
  // Shorter than the buffers: JAX's prologue goes on with the first block, and nobody waits for it.
  EXPECT_EQ(trace_of(1, 4, 2, false, 1), "+x0:0 ?x0 ! -o0:0 =o0");
  EXPECT_EQ(trace_of(2, 4, 2, false, 1), "+x0:0 +x8:1 ?x0 ! -o0:0 ?x1 ! -o8:1 =o0 =o1");
}

TEST(TilePipeline, EveryBlockOnceAndEdges) {
  for_each_order([](const MachineOptions& options) {
    // 40 x 300: the last row of blocks has 8 rows of 16, the last column 44 of 128.
    for (const int buffers : {1, 2}) {
      AddOne problem{40, 300};
      Machine machine(options);
      problem.run(machine,
                  same_blocks({3, 3}, BlockSpec::blocks({16, 128}, by_row_and_column, buffers)));
      problem.check();
      EXPECT_EQ(machine.report().copies, 18);
      // 40 rows are whole tiles of 8; 300 columns move as 384.
      EXPECT_EQ(machine.report().buffer("x").bytes_read, 40 * 384 * 4);
      EXPECT_EQ(machine.report().buffer("out").bytes_written, 40 * 384 * 4);
      EXPECT_EQ(machine.report().vmem_high_water_bytes, 2 * buffers * 16 * 128 * 4);
    }
  });
}

TEST(TilePipeline, BeyondTheArrayIsNan) {
  // JAX's example: blocks of 256 on 601 x 600, 167 rows and 168 columns of the last are outside.
  AddOne problem{601, 600};
  Machine machine;
  std::int64_t nan_rows = 0;
  std::int64_t nan_columns = 0;
  call(machine, "edges", {.grid = {3, 3}, .in = {BlockSpec::blocks({256, 256}, by_row_and_column)}},
       [&](auto window) {
         if (program_id(0) != 2 || program_id(1) != 2) return;
         for (int i = 0; i < 256; ++i) nan_rows += std::isnan(window.load(i, 0));
         for (int j = 0; j < 256; ++j) nan_columns += std::isnan(window.load(0, j));
       })(problem.in(machine));
  EXPECT_EQ(nan_rows, 167);
  EXPECT_EQ(nan_columns, 168);
  EXPECT_EQ(machine.report().buffer("x").bytes_read, 608 * 640 * 4);
}

TEST(TilePipeline, EdgesInsideAKernelToo) {
  // Blocks of whole tiles: the same windows from emit_pipeline, in a vector and a matrix.
  AddOne problem{40, 300};
  Tensor<float> row({300}, iota(300));
  Machine machine;
  double sum = 0;
  on_core(machine, "outer", [&](auto x, auto r, auto out) {
    emit_pipeline(
        {.grid = {3, 3},
         .in = {BlockSpec::blocks({16, 128}, by_row_and_column, 3),
                BlockSpec::blocks(
                    {128}, [](auto& g) { return ix(g[1]); }, 3)},
         .out = {BlockSpec::blocks({16, 128}, by_row_and_column)}},
        [&](auto xs, auto rs, auto os) {
          AddOne::body(xs, os);
          if (program_id(0) == 0) sum += rs.load(program_id(1) == 2 ? 43 : 127);
          EXPECT_EQ(std::isnan(rs.load(44)), program_id(1) == 2);
        },
        x, r, out);
  })(problem.in(machine), row.in(machine), problem.result(machine));
  problem.check();
  EXPECT_EQ(sum, 127 + 255 + 299);
}

TEST(TilePipeline, TwoCoresShareAGrid) {
  for_each_order({.chip = find_chip("v5p")}, [](Machine& machine) {
    AddOne problem{40, 256};
    std::vector<Shape> points;
    call(machine, "add_one",
         same_blocks({5, 2}, BlockSpec::blocks({8, 128}, by_row_and_column),
                     {Semantics::parallel, Semantics::arbitrary}),
         [&](auto x, auto out) {
           AddOne::body(x, out);
           points.push_back({core_index(), program_id(0), program_id(1)});
         })(problem.in(machine), problem.result(machine));
    problem.check();
    // 5 rows of blocks: 3 for the first core, 2 for the second.
    std::sort(points.begin(), points.end());
    ASSERT_EQ(points.size(), 10u);
    for (std::size_t i = 0; i < points.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i / 2);
      EXPECT_EQ(points[i], (Shape{row >= 3, row, static_cast<std::int64_t>(i % 2)}));
    }
  });
}

TEST(TilePipeline, ScalarPrefetchChoosesBlocks) {
  for_each_order([](Machine& machine) {
    AddOne problem{32, 128};
    Tensor<std::int32_t> order({4}, {2, 0, 3, 3});
    call(machine, "gather",
         {.grid = {4},
          .in = {BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g.prefetched(0, g[0]), 0); })},
          .out = {BlockSpec::blocks({8, 128}, by_row)},
          .num_scalar_prefetch = 1},
         [&](auto indices, auto x, auto out) {
           EXPECT_EQ(indices.load(program_id(0)),
                     order.data[static_cast<std::size_t>(program_id(0))]);
           AddOne::body(x, out);
         })(order.in(machine), problem.in(machine), problem.result(machine));
    for (std::size_t i = 0; i < 32 * 128; ++i) {
      const auto source = static_cast<std::size_t>(order.data[i / 1024]) * 1024 + i % 1024;
      ASSERT_EQ(problem.out[i], problem.x[source] + 1);
    }
    // 2, 0, 3 and 3: the last step has its block already.
    EXPECT_EQ(machine.report().buffer("x").copies, 3);
  });
}

TEST(TilePipeline, ScratchLastsAndBlocksThatStayAreNotCopied) {
  // out[i] = sum over j of x[i, j]: the output block stays over j, the scratch over everything.
  AddOne problem{16, 512};
  Tensor<float> all_of_it({16, 512}, problem.x), sums({16, 128});
  Machine machine;
  int calls = 0;
  call(
      machine, "sum",
      {.grid = {2, 4},
       .in = {BlockSpec::blocks({8, 128}, by_row_and_column), BlockSpec::whole()},
       .out = {BlockSpec::blocks({8, 128}, by_row)}},
      [&](auto x, auto all, auto sum, auto count) {
        if (program_id(1) == 0) set(sum, [](auto, auto) { return 0; });
        EXPECT_EQ(all.load(15, 511), 16 * 512 - 1);
        set(sum, [&](auto i, auto j) { return sum.load(i, j) + x.load(i, j); });
        count.store(calls == 0 ? 1 : count.load(0) + 1, 0);
        EXPECT_EQ(count.load(0), ++calls);
      },
      Smem<std::int32_t>{{1}})(problem.in(machine), all_of_it.in(machine),
                               sums.in(machine, "sums"));
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 128; ++j) {
      float sum = 0;
      for (std::size_t k = 0; k < 4; ++k) sum += problem.x[i * 512 + k * 128 + j];
      ASSERT_EQ(sums.data[i * 128 + j], sum);
    }
  }
  EXPECT_EQ(machine.report().buffer("sums").copies, 2) << "two output blocks";
}

}  // namespace
}  // namespace tessera::tile
