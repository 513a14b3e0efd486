// SPDX-License-Identifier: Apache-2.0
// The programs of examples/tile, and some more, give what JAX's interpret mode gives
// (tests/tile_goldens/make_programs.py: what each computes, and from what).
#include <gtest/gtest.h>

#include <cmath>

#include "examples/tile/add_refs.hpp"
#include "examples/tile/add_vectors.hpp"
#include "examples/tile/aliased_update.hpp"
#include "examples/tile/dynamic_slice.hpp"
#include "examples/tile/gather_blocks.hpp"
#include "examples/tile/loop_of_kernels.hpp"
#include "examples/tile/matmul.hpp"
#include "examples/tile/pipelines.hpp"
#include "tests/support/tile_golden.hpp"

namespace tessera::tile {
namespace {

using namespace tile_examples;
using namespace test;

/// Both ways in which copies move their data.
class TilePrograms : public testing::TestWithParam<DmaMode> {
 public:
  Machine machine{{.chip = find_chip("v5p"), .dma = GetParam()}};
};
INSTANTIATE_TEST_SUITE_P(, TilePrograms, testing::Values(DmaMode::eager, DmaMode::on_wait),
                         name_of_mode);

TEST_P(TilePrograms, Vectors) {
  auto x = pattern({4096}, 0), y = pattern({4096}, 1);
  Tensor<float> o({4096});
  add_vectors(machine, x.in(machine), y.in(machine), o.in(machine));
  Golden("add_vectors").expect("o", o);
}

TEST_P(TilePrograms, Refs) {
  auto x = pattern({16, 128}, 14), y = pattern({16, 128}, 15);
  Tensor<float> o({16, 128});
  add_refs(machine, x.in(machine), y.in(machine), o.in(machine));
  Golden("add_refs").expect("o", o);

  auto total = pattern({32, 128}, 16), addend = pattern({32, 128}, 17);
  const auto in_place = total.in(machine);
  const auto summand = addend.in(machine);
  machine.reset_report();
  loop_of_kernels(machine, in_place, summand, 10);
  Golden("loop_of_kernels").expect("x", total);
  EXPECT_EQ(machine.report().hbm_allocations, 0);
  EXPECT_EQ(machine.report().copies, 10 * 3 * 4);
}

template <class T, class Out, class Sum = float>
void expect_matmul(Machine& machine, const char* golden) {
  auto x = pattern<T>({128, 384}, 2), y = pattern<T>({384, 256}, 3);
  Tensor<Out> o({128, 256});
  matmul<T, Out, Sum>(machine, x.in(machine, "x"), y.in(machine, "y"), o.in(machine, "o"));
  Golden("matmul_call").expect(golden, o);
}

TEST_P(TilePrograms, MatmulByCall) {
  expect_matmul<float, float>(machine, "f32");
  expect_matmul<bf16, float>(machine, "bf16_f32");
  expect_matmul<bf16, bf16>(machine, "bf16_bf16");
}

TEST_P(TilePrograms, MatmulOnCores) {
  const auto run = [&]<class T>(T, int cores, int buffers, const char* golden) {
    auto x = pattern<T>({128, 384}, 2), y = pattern<T>({384, 256}, 3);
    Tensor<T> o({128, 256});
    matmul_on_cores(machine, x.in(machine, "x"), y.in(machine, "y"), o.in(machine, "o"), cores,
                    buffers);
    Golden("matmul_emit_pipeline").expect(golden, o);
  };
  run(0.0f, 1, 2, "f32_1");
  run(0.0f, 2, 3, "f32_2");
  run(bf16(), 1, 2, "bf16_1");
  run(bf16(), 2, 4, "bf16_2");
}

TEST_P(TilePrograms, Gathers) {
  Tensor<std::int32_t> table({6}, {3, 3, 0, 7, 1, 1});
  auto x = pattern({64, 128}, 4);
  Tensor<float> one({48, 128});
  gather_blocks(machine, table.in(machine), x.in(machine, "x"), one.in(machine));
  Golden("gather_blocks").expect("one", one);
  // 3, 3 and 1, 1: the block is there already.
  EXPECT_EQ(machine.report().buffer("x").copies, 4);

  Tensor<std::int32_t> rows({3, 2}, {0, 3, 2, 2, 1, 0});
  auto y = pattern({32, 256}, 5);
  Tensor<float> two({24, 256});
  gather_blocks_2d(machine, rows.in(machine), y.in(machine), two.in(machine));
  Golden("gather_blocks").expect("two", two);

  Tensor<std::int32_t> row({7}, {0, 0, 1, 2, 2, 2, 3}), column({7}, {0, 2, 1, 0, 1, 2, 2});
  auto packed = pattern({7, 8, 128}, 6), values = pattern({384, 128}, 7);
  Tensor<float> o({32, 128});
  block_sparse_matmul(machine, row.in(machine), column.in(machine), packed.in(machine),
                      values.in(machine), o.in(machine));
  Golden("block_sparse_matmul").expect("o", o);
}

TEST_P(TilePrograms, GathersWithAnyBuffers) {
  const std::vector<std::int32_t> blocks = {0, 0, 2, 3, 3, 3, 1, 7, 6, 6};
  auto x = pattern({64, 128}, 23);
  for (const int buffers : {1, 2, 3, 4}) {
    for (const bool lookahead : {false, true}) {
      Tensor<float> o({80, 128});
      on_core(machine, "gather", [&](auto from, auto to) {
        emit_pipeline(
            {.grid = {10},
             .in = {BlockSpec::blocks(
                 {8, 128}, [&](auto& g) { return ix(blocks[static_cast<std::size_t>(g[0])], 0); },
                 buffers, lookahead)},
             .out = {BlockSpec::blocks({8, 128}, by_row)}},
            [](auto in, auto out) { assign(out, in); }, from, to);
      })(x.in(machine), o.in(machine));
      Golden("gather_buffers").expect("o", o);
    }
  }
}

TEST_P(TilePrograms, InPlace) {
  auto x = pattern({32, 128}, 8);
  aliased_update(machine, x.in(machine));
  Golden("aliased_update").expect("x", x);
}

TEST_P(TilePrograms, DynamicSlice) {
  Tensor<std::int32_t> table({5, 2}, {5, 1, 0, 2, 7, 3, 2, 4, 0, 0});
  auto x = pattern({64, 128}, 18);
  Tensor<float> o({32, 128});
  dynamic_slice(machine, table.in(machine), x.in(machine), o.in(machine));
  Golden("dynamic_slice").expect("o", o);
}

TEST_P(TilePrograms, Edges) {
  auto x = pattern({203, 300}, 19);
  Tensor<float> o({203, 300});
  twice_with_edges(machine, x.in(machine), o.in(machine));
  Golden("pipeline_edges").expect("o", o);

  auto wide = pattern({601, 600}, 9);
  Tensor<float> twice({601, 600});
  Tensor<std::int32_t> rows({3, 3}), columns({3, 3});
  const auto blocks = BlockSpec::blocks({256, 256}, by_row_and_column);
  call(machine, "edge_blocks", {.grid = {3, 3}, .in = {blocks}, .out = {blocks}},
       [&](auto in, auto out) {
         map(
             out, [](float v) { return 2 * v; }, in);
         const auto at = static_cast<std::size_t>(3 * program_id(0) + program_id(1));
         for (int i = 0; i < 256; ++i) {
           rows.data[at] += std::isnan(in.load(i, 0));
           columns.data[at] += std::isnan(in.load(0, i));
         }
       })(wide.in(machine), twice.in(machine));
  const Golden golden("edge_blocks");
  golden.expect("o", twice);
  golden.expect("rows_nan", rows);
  golden.expect("columns_nan", columns);
}

TEST_P(TilePrograms, UnusualWindows) {
  auto x = pattern({64, 128}, 21);
  Tensor<float> rows({64, 128}, std::vector<float>(64 * 128, 0.0f));
  ragged_rows(machine, {{0, 16}, {16, 8}, {24, 32}}, x.in(machine), rows.in(machine));
  Golden("bounded_slices").expect("rows", rows);

  auto planes = pattern({20, 8, 128}, 20);
  Tensor<float> raised({20, 8, 128});
  on_core(machine, "planes", [](auto from, auto to) {
    const auto slices = BlockSpec::blocks({bounded_slice(8), 8, 128}, [](auto& g) {
      return ix(ds(8 * g[0], std::min<std::int64_t>(8, 20 - 8 * g[0])), 0, 0);
    });
    emit_pipeline(
        {.grid = {3}, .in = {slices}, .out = {slices}},
        [](auto in, auto out) {
          map(
              out, [](float v) { return v + 1; }, in);
        },
        from, to);
  })(planes.in(machine), raised.in(machine));
  Golden("bounded_slices").expect("planes", raised);

  auto y = pattern({40, 128}, 22);
  Tensor<float> sums({32, 128});
  overlapping_windows(machine, y.in(machine), sums.in(machine));
  Golden("element_windows").expect("call", sums);
  Golden("element_windows").expect("pipeline", sums);
}

TEST_P(TilePrograms, AWindowThatIsWritten) {
  // The body writes its input window; the block stays, and the next step sees it.
  auto x = pattern({8, 128}, 10);
  Tensor<float> o({24, 128});
  call(machine, "mutated_window",
       {.grid = {3},
        .in = {BlockSpec::blocks({8, 128}, [](auto&) { return ix(0, 0); })},
        .out = {BlockSpec::blocks({8, 128}, by_row)}},
       [](auto window, auto out) {
         map(
             window, [](float v) { return v + 1; }, window);
         assign(out, window);
       })(x.in(machine), o.in(machine));
  Golden("mutated_window").expect("o", o);
  Golden("mutated_window").expect("x", x);
}

/// Views know no int8: the values come as i32 and are cast on the machine.
Array<std::int8_t> bytes(Machine& machine, Tensor<std::int32_t>& values) {
  const auto result = machine.empty_ref<std::int8_t>("bytes", values.shape);
  on_core(machine, "cast", Vmem<std::int32_t>{values.shape}, Vmem<std::int8_t>{values.shape},
          [](auto from, auto to, auto wide, auto narrow) {
            sync_copy(from, wide);
            assign(narrow, wide);
            sync_copy(narrow, to);
          })(values.in(machine), result);
  return result;
}

template <class T>
Array<T> given(Machine& machine, const Shape& shape, std::int64_t salt) {
  if constexpr (std::is_same_v<T, std::int8_t>) {
    auto values = pattern<std::int32_t>(shape, salt);
    return bytes(machine, values);
  } else {
    const auto values = pattern<T>(shape, salt);
    return machine.new_ref<T>("given",
                              View::host(values.data.data(), dtype_of<T>::value, values.shape));
  }
}

template <class T>
Tensor<T> corner(Machine& machine, const Array<T>& array) {
  const auto values = machine.values(array);
  return Tensor<T>(array.extents(), {values.begin(), values.end()}).corner(8, 120, 136);
}

template <class T>
void expect_types(Machine& machine, const std::string& name) {
  using Wide = std::conditional_t<std::is_integral_v<T>, std::int32_t, float>;
  const auto x = given<T>(machine, {32, 256}, 11);
  const auto y = given<T>(machine, {32, 256}, 12);
  const auto combined = machine.empty_ref<T>("combined", {32, 256});
  const auto larger = machine.empty_ref<T>("larger", {32, 256});
  const auto chosen = machine.empty_ref<T>("chosen", {32, 256});
  const auto rows = machine.empty_ref<Wide>("rows", {32, 256});
  const auto columns = machine.empty_ref<Wide>("columns", {8, 256});
  const auto tiles = BlockSpec::blocks({32, 128}, [](auto& g) { return ix(0, g[0]); });
  call(
      machine, "types",
      {.grid = {2},
       .in = {tiles, tiles},
       .out = {tiles, tiles, tiles, tiles,
               BlockSpec::blocks({8, 128}, [](auto& g) { return ix(0, g[0]); })}},
      [](auto a, auto b, auto c, auto l, auto s, auto r, auto k, auto row, auto column) {
        map(
            c, [](auto u, auto v) { return 3 * u - v; }, a, b);
        map(
            l, [](auto u, auto v) { return u > v ? u : v; }, a, b);
        map(
            s, [](auto u, auto v) { return u > v ? u : -v; }, a, b);
        reduce_sum(row, a, 1);
        assign(r, row);
        reduce_sum(column, a, 0);
        assign(k, column);
      },
      Vmem<Wide>{{32, 1}, "row sums"},
      Vmem<Wide>{{1, 128}, "column sums"})(x, y, combined, larger, chosen, rows, columns);
  const Golden golden("types");
  golden.expect(name + "_combined", corner(machine, combined));
  golden.expect(name + "_larger", corner(machine, larger));
  golden.expect(name + "_chosen", corner(machine, chosen));
  golden.expect(name + "_rows", corner(machine, rows));
  golden.expect(name + "_columns", corner(machine, columns));
}

TEST_P(TilePrograms, Types) {
  expect_types<float>(machine, "f32");
  expect_types<bf16>(machine, "bf16");
  expect_types<std::int32_t>(machine, "i32");
  expect_types<std::int8_t>(machine, "i8");
  Tensor<std::int32_t> o({128, 256});
  matmul<std::int8_t, std::int32_t, std::int32_t>(
      machine, given<std::int8_t>(machine, {128, 384}, 2),
      given<std::int8_t>(machine, {384, 256}, 3), o.in(machine));
  Golden("matmul_call").expect("i8_i32", o);
}

TEST_P(TilePrograms, ReductionsHaveNan) {
  auto x = pattern({8, 128}, 13);
  x.data[2 * 128 + 3] = std::nanf("");
  Tensor<float> o({4, 8});
  call(
      machine, "reductions", {.grid = {1}, .in = {BlockSpec::whole()}},
      [&](auto in, auto column) {
        const auto keep = [&](std::size_t row) {
          for (std::size_t i = 0; i < 8; ++i) o.data[row * 8 + i] = column.load(i, 0);
        };
        reduce_max(column, in, 1);
        keep(0);
        reduce_min(column, in, 1);
        keep(1);
        reduce_sum(column, in, 1);
        keep(2);
        reduce_sum(
            column, 1, {}, [](float v) { return v > 0 ? 1.0f : 0.0f; }, in);
        keep(3);
      },
      Vmem<float>{{8, 1}, "column"})(x.in(machine));
  Golden("reductions_with_nan").expect("o", o);
}

TEST_P(TilePrograms, ProgramIdsOnTwoCores) {
  Tensor<float> o({24, 512});
  kernel(machine, "program_ids", tensorcore_mesh(machine, 2), [](auto out) {
    emit_pipeline(
        {.grid = {3, 4},
         .out = {BlockSpec::blocks({8, 128}, by_row_and_column)},
         .semantics = {Semantics::parallel, Semantics::parallel},
         .over_cores = true},
        [](auto tile) {
          fill(tile, static_cast<float>(100 * program_id(0) + 10 * program_id(1) + core_index()));
        },
        out);
  })(o.in(machine));
  Tensor<float> kept({3, 4});
  for (std::size_t i = 0; i < 12; ++i) kept.data[i] = o.data[(i / 4) * 8 * 512 + (i % 4) * 128];
  Golden("program_ids").expect("o", kept);
}

}  // namespace
}  // namespace tessera::tile
