// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/tile_planted/programs.hpp"

namespace tessera::tile::test {
namespace {

using enum ErrorKind;

IndexMap before() {
  return [](const GridPoint& g) { return ix(std::max<std::int64_t>(g[0] - 1, 0), 0); };
}
const BlockSpec& rows() {
  static const BlockSpec spec = BlockSpec::blocks({8, 128}, by_row);
  return spec;
}

/// out += x, from 0 in the first step.
void sum_up(const Ref<float>& x, const Ref<float>& out) {
  set(out,
      [&](auto i, auto j) { return (program_id(0) == 0 ? 0.0f : out.load(i, j)) + x.load(i, j); });
}

/// A call of one input and one output.
auto calls(std::int64_t array_rows, std::int64_t columns, Shape grid, BlockSpec in, BlockSpec out,
           std::vector<Semantics> semantics = {},
           void (*body)(const Ref<float>&, const Ref<float>&) = AddOne::body) {
  return [=](const MachineOptions& options) {
    Machine machine(options);
    AddOne problem{array_rows, columns};
    call(machine, "planted", {.grid = grid, .in = {in}, .out = {out}, .semantics = semantics},
         body)(problem.in(machine), problem.result(machine));
  };
}

/// The same by emit_pipeline in a kernel.
auto pipelines(std::int64_t array_rows, std::int64_t columns, const PipelineSpec& spec,
               int cores = 1, void (*body)(const Ref<float>&, const Ref<float>&) = AddOne::body) {
  return [=](const MachineOptions& options) {
    Machine machine(options);
    AddOne problem{array_rows, columns};
    kernel(machine, "planted", tensorcore_mesh(machine, cores), [&](auto x, auto out) {
      emit_pipeline(spec, body, x, out);
    })(problem.in(machine), problem.result(machine));
    for (std::size_t i = 0; i < problem.x.size(); ++i) {
      if (problem.out[i] != problem.x[i] + 1) ADD_FAILURE() << "wrong result";
    }
  };
}

void aliased_call(const MachineOptions& options) {
  Machine machine(options);
  AddOne problem{32};
  const auto array = problem.result(machine);
  call(machine, "planted",
       {.grid = {4},
        .in = {BlockSpec::blocks({8, 128}, before())},
        .out = {rows()},
        .input_output_aliases = {{0, 0}}},
       AddOne::body)(array, array);
}

void aliased_pipeline(const MachineOptions& options) {
  Machine machine(options);
  AddOne problem{32};
  on_core(machine, "planted", [](auto out) {
    emit_pipeline({.grid = {4}, .in = {BlockSpec::blocks({8, 128}, before())}, .out = {rows()}},
                  AddOne::body, out, out);
  })(problem.result(machine));
}

void prefetched_operand_aliased(const MachineOptions& options) {
  Machine machine(options);
  std::vector<std::int32_t> values(8 * 128, 1);
  const auto table =
      machine.array<std::int32_t>("table", MutableView::host(values.data(), DType::i32, {8, 128}));
  const auto x = machine.empty_ref<std::int32_t>("x", {8, 128});
  const auto whole = BlockSpec::blocks({8, 128}, [](auto&) { return ix(0, 0); });
  call(machine, "planted",
       {.grid = {1},
        .in = {whole},
        .out = {whole},
        .num_scalar_prefetch = 1,
        .input_output_aliases = {{0, 0}}},
       [](auto, auto, auto) {})(table, x, table);
}

/// Programs that end, and what shows in their result.
void expect_nan(const AddOne& problem) {
  if (!std::isnan(std::accumulate(problem.out.begin(), problem.out.end(), 0.0f)))
    ADD_FAILURE() << "no NaN";
}

void tail_of_an_edge_block(const MachineOptions& options) {
  Machine machine(options);
  AddOne problem{200};
  std::vector<float> sums(8 * 128);
  const auto out =
      machine.array<float>("sums", MutableView::host(sums.data(), DType::f32, {8, 128}));
  on_core(machine, "planted", [](auto x, auto to) {
    emit_pipeline(
        {.grid = {4},
         .in = {BlockSpec::blocks({64, 128}, by_row)},
         .out = {BlockSpec::blocks({8, 128}, [](auto&) { return ix(0, 0); })}},
        [](auto window, auto total) {
          float sum = program_id(0) == 0 ? 0.0f : total.load(0, 0);
          for (int i = 0; i < 64; ++i) sum += window.load(i, 0);
          total.store(sum, 0, 0);
        },
        x, to);
  })(problem.in(machine), out);
  if (!std::isnan(sums[0])) ADD_FAILURE() << "no NaN";
}

void output_not_written(const MachineOptions& options) {
  Machine machine(options);
  AddOne problem{32};
  call(machine, "planted", {.grid = {4}, .in = {rows()}, .out = {rows()}}, [](auto x, auto out) {
    if (program_id(0) % 2 == 0) AddOne::body(x, out);
  })(problem.in(machine), problem.result(machine));
  expect_nan(problem);
}

void sums_not_set_to_zero(const MachineOptions& options) {
  Machine machine(options);
  AddOne problem{8, 256};
  AddOne result{8};
  call(machine, "planted",
       {.grid = {2},
        .in = {BlockSpec::blocks({8, 128}, [](auto& g) { return ix(0, g[0]); })},
        .out = {BlockSpec::blocks({8, 128}, [](auto&) { return ix(0, 0); })}},
       [](auto x, auto out) {
         for (int i = 0; i < 8; ++i) {
           for (int j = 0; j < 128; ++j) out.store(out.load(i, j) + x.load(i, j), i, j);
         }
       })(problem.in(machine), result.result(machine));
  expect_nan(result);
}

}  // namespace

std::vector<Planted> planted_grids() {
  using enum Semantics;
  const BlockSpec tiles = BlockSpec::blocks({8, 128}, by_row_and_column);
  const BlockSpec next = BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g[0] + 1, 0); });
  const BlockSpec column = BlockSpec::blocks({8, 128}, [](auto& g) { return ix(0, g[1]); });
  const BlockSpec first = BlockSpec::blocks({8, 128}, [](auto&) { return ix(0, 0); });
  const BlockSpec narrow = BlockSpec::blocks({8, 100}, by_row_and_column);
  const BlockSpec flat = BlockSpec::blocks({4, 128}, by_row);
  const BlockSpec vector = BlockSpec::blocks({128}, [](auto& g) { return ix(g[0]); });
  const BlockSpec window =
      BlockSpec::blocks({element(16), element(128)}, [](auto& g) { return ix(8 * g[0], 0); });
  const BlockSpec slice =
      BlockSpec::blocks({bounded_slice(8), 128}, [](auto& g) { return ix(ds(8 * g[0], 16), 0); });
  BlockSpec in_hbm = rows();
  in_hbm.shape.space = MemorySpace::hbm;
  const auto buffered = [](int count, bool lookahead = false) {
    return BlockSpec::blocks({8, 128}, by_row, count, lookahead);
  };
  const auto by_rows = [](BlockSpec in, BlockSpec out, std::int64_t steps = 4) {
    return PipelineSpec{.grid = {steps}, .in = {std::move(in)}, .out = {std::move(out)}};
  };
  PipelineSpec shared = by_rows(rows(), rows());
  shared.over_cores = true;
  const PipelineSpec revisits{.grid = {2, 2}, .in = {tiles}, .out = {column}};
  return {
      {"hbm_spec_with_blocks", block_rule, "R4", calls(32, 128, {4}, in_hbm, rows())},
      {"block_beyond_the_end", bounds, "'x'", calls(32, 128, {4}, next, rows())},
      {"transposed_index_map", bounds, "'x'",
       calls(24, 256, {3, 2}, BlockSpec::blocks({8, 128}, [](auto& g) { return ix(g[1], g[0]); }),
             tiles)},
      {"output_beyond_the_end", bounds, "'out'", calls(32, 128, {4}, rows(), next)},
      {"output_revisited", revisit, "'out'", calls(16, 256, {2, 2}, tiles, column, {}, sum_up)},
      {"output_revisited_in_a_pipeline", revisit, "'out'", pipelines(16, 256, revisits, 1, sum_up)},
      {"aliased_input_read_later", race, "'out'", aliased_call},
      {"aliased_input_read_later_in_a_pipeline", race, "'out'", aliased_pipeline},
      {"prefetched_operand_aliased", usage, "'table'", prefetched_operand_aliased},
      {"illegal_block", block_rule, "R2", calls(32, 400, {4, 4}, narrow, narrow)},
      {"illegal_rows", block_rule, "R2", calls(32, 128, {8}, flat, flat)},
      {"rank_differs", block_rule, "R1", calls(32, 128, {4}, vector, rows())},
      {"parallel_behind_arbitrary", block_rule, "R12",
       calls(16, 256, {2, 2}, tiles, tiles, {arbitrary, parallel})},
      {"sum_over_a_parallel_dimension", race, "'out'",
       calls(32, 128, {4}, rows(), first, {parallel}, sum_up)},
      {"four_buffers_in_a_call", block_rule, "R14", calls(32, 128, {4}, buffered(4), rows())},
      {"three_buffers_of_an_output", block_rule, "R14",
       pipelines(32, 128, by_rows(rows(), buffered(3)))},
      {"lookahead_with_one_buffer",
       {},
       "",
       pipelines(32, 128, by_rows(buffered(1, true), rows())),
       "right"},
      {"tail_of_an_edge_block", {}, "", tail_of_an_edge_block, "NaN"},
      {"output_not_written", {}, "", output_not_written, "NaN"},
      {"sums_not_set_to_zero", {}, "", sums_not_set_to_zero, "NaN"},
      {"windows_of_an_output_overlap", race, "'out'", calls(40, 128, {4}, window, window)},
      {"slice_longer_than_its_bound", bounds, "R16", pipelines(32, 128, by_rows(slice, rows(), 2))},
      {"no_parallel_dimension_for_two_cores", block_rule, "R12", pipelines(32, 128, shared, 2)},
      {"fewer_steps_than_buffers",
       {},
       "",
       pipelines(16, 128, by_rows(buffered(4), rows(), 2)),
       "right"},
  };
}

}  // namespace tessera::tile::test
