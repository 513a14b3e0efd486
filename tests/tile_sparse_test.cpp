// SPDX-License-Identifier: Apache-2.0
// SparseCores: gathers and scatters on their subcores, barriers, and kernels of several bodies.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using namespace test;

/// A table of 64 rows, and 32 indices into it.
struct Lookup {
  Tensor<float> table{{64, 128}, iota(64 * 128)}, out{{32, 128}};
  Tensor<std::int32_t> indices{{32}};

  Lookup() {
    for (int i = 0; auto& index : indices.data) index = i++ * 37 % 64;
  }
  auto arrays(Machine& machine) {
    return std::tuple{table.in(machine, "table"), indices.in(machine), out.in(machine, "out")};
  }
  void check(float plus = 0) const {
    for (std::size_t i = 0; i < out.data.size(); ++i) {
      const auto row = static_cast<std::size_t>(indices.data[i / 128]);
      ASSERT_EQ(out.data[i], table.data[row * 128 + i % 128] + plus) << i;
    }
  }
};

const MachineOptions with_sparse_cores{.chip = find_chip("v5p")};

TEST(TileSparse, SubcoresGatherRows) {
  for_each_order(with_sparse_cores, [](Machine& machine) {
    Lookup problem;
    auto arrays = problem.arrays(machine);
    // 2 SparseCores x 4 subcores, 4 rows each.
    std::apply(launch(machine, "gather", vector_subcore_mesh(machine, 2, 4),
                      Vmem<std::int32_t>{{4}, "mine"}, Vmem<float>{{4, 128}, "rows"},
                      [](auto table, auto indices, auto out, auto mine, auto rows) {
                        const auto first = 4 * (core_index() * num_subcores() + subcore_index());
                        sync_copy(indices.at(ds(first, 4)), mine);
                        sync_gather(table, mine, rows);
                        sync_copy(rows, out.at(ds(first, 4)));
                      }),
               arrays);
    problem.check();
    EXPECT_EQ(machine.report().buffer("table").bytes_read, 32 * 128 * 4);
  });
}

TEST(TileSparse, RowsCountWholeGranules) {
  // Rows of 3 words: 12 bytes, of which 32 are moved.
  Tensor<float> table({16, 3}, iota(16 * 3));
  Machine machine(with_sparse_cores);
  launch(machine, "gather", vector_subcore_mesh(machine, 1, 1), Vmem<std::int32_t>{{8}, "indices"},
         Vmem<float>{{8, 3}, "rows"}, [](auto from, auto indices, auto rows) {
           for (int i = 0; i < 8; ++i) indices.store(15 - i, i);
           sync_gather(from, indices, rows);
           EXPECT_EQ(rows.load(2, 1), 13 * 3 + 1);
         })(table.in(machine, "table"));
  EXPECT_EQ(machine.report().buffer("table").bytes_read, 8 * 32);
}

TEST(TileSparse, ScattersReplaceOrAdd) {
  for_each_order(with_sparse_cores, [](const MachineOptions& options) {
    for (const bool add : {false, true}) {
      Tensor<float> out({8, 128}, std::vector<float>(8 * 128, 1.0f));
      Machine machine(options);
      launch(machine, "scatter", vector_subcore_mesh(machine, 1, 1),
             Vmem<std::int32_t>{{3}, "indices"}, Vmem<float>{{3, 128}, "rows"},
             [&](auto to, auto indices, auto rows) {
               const std::int32_t where[] = {5, 2, add ? 5 : 4};
               for (int i = 0; i < 3; ++i) indices.store(where[i], i);
               set(rows, [](auto i, auto) { return 10 * i + 10; });
               sync_scatter(rows, to, indices, {.add = add});
             })(out.in(machine));
      // Rows that go to one place are added, and nothing else.
      EXPECT_EQ(out.data[5 * 128 + 7], add ? 1 + 10 + 30 : 10);
      EXPECT_EQ(out.data[4 * 128 + 7], add ? 1 : 30);
      EXPECT_EQ(out.data[2 * 128], add ? 21 : 20);
      EXPECT_EQ(out.data[0], 1);
    }
  });
}

TEST(TileSparse, Refused) {
  Machine machine(with_sparse_cores);
  Lookup problem;
  auto arrays = problem.arrays(machine);
  const auto gather = [&](Mesh mesh, std::int32_t index, Shape rows_shape) {
    std::apply(launch(machine, "gather", mesh, Vmem<std::int32_t>{{4}, "mine"},
                      Vmem<float>{rows_shape, "rows"},
                      [&](auto table, auto, auto, auto mine, auto rows) {
                        for (int i = 0; i < 4; ++i) mine.store(index, i);
                        sync_gather(table, mine, rows);
                      }),
               arrays);
  };
  const Mesh one = vector_subcore_mesh(machine, 1, 1);
  expect_error(ErrorKind::bounds, {"'table'", "64", "0 to 63", "subcore"}, [&] {
    gather(one, 64, {4, 128});
  });
  expect_error(ErrorKind::bounds, {"-1"}, [&] { gather(one, -1, {4, 128}); });
  expect_error(ErrorKind::usage, {"4 indices", "[5, 128]"}, [&] { gather(one, 0, {5, 128}); });
  expect_error(ErrorKind::usage, {"only vector subcores"}, [&] {
    gather(tensorcore_mesh(machine, 1), 0, {4, 128});
  });
  expect_error(ErrorKind::vmem, {"scalar subcore", "'mine'"}, [&] {
    gather(scalar_subcore_mesh(machine, 1), 0, {4, 128});
  });
  // 512 KiB per subcore, and a mesh of what is not there.
  expect_error(ErrorKind::vmem, {"R13", "rows"}, [&] { gather(one, 0, {1100, 128}); });
  expect_error(ErrorKind::usage, {"17 subcores", "16"}, [&] {
    gather(vector_subcore_mesh(machine, 1, 17), 0, {4, 128});
  });
  expect_error(ErrorKind::usage, {"v5e", "no SparseCores"}, [] {
    Machine other({.chip = find_chip("v5e")});
    vector_subcore_mesh(other);
  });
}

TEST(TileSparse, TwoSubcoresOnOneRow) {
  Machine machine(with_sparse_cores);
  Lookup problem;
  auto arrays = problem.arrays(machine);
  expect_error(ErrorKind::race, {"'out'", "subcore 0", "subcore 1"}, [&] {
    std::apply(launch(machine, "scatter", vector_subcore_mesh(machine, 1, 2),
                      Vmem<std::int32_t>{{2}, "mine"}, Vmem<float>{{2, 128}, "rows"},
                      [](auto, auto, auto out, auto mine, auto rows) {
                        mine.store(3 * subcore_index(), 0);
                        mine.store(5, 1);
                        set(rows, [](auto, auto) { return 1; });
                        sync_scatter(rows, out, mine);
                      }),
               arrays);
  });
}

TEST(TileSparse, SubcoreBarriersOrder) {
  // Each subcore reads what its neighbour wrote; the SparseCores do not wait for each other.
  const auto run = [](const MachineOptions& options, bool wait) {
    Machine machine(options);
    Tensor<float> out({8, 128});
    launch(machine, "neighbours", vector_subcore_mesh(machine, 2, 4), Vmem<float>{{1, 128}, "tile"},
           [&](auto to, auto tile) {
             const int first = 4 * core_index();
             set(tile, [](auto, auto) { return subcore_index(); });
             sync_copy(tile, to.at(ds(first + subcore_index(), 1)));
             if (wait) subcore_barrier();
             const int next = (subcore_index() + 1) % 4;
             sync_copy(to.at(ds(first + next, 1)), tile);
             const float got = tile.load(0, 5);
             EXPECT_TRUE(!wait || got == static_cast<float>(next)) << got;
           })(out.in(machine, "out"));
  };
  for_each_order(with_sparse_cores, [&](const MachineOptions& options) { run(options, true); });
  expect_error(ErrorKind::race, {"'out'"}, [&] { run(with_sparse_cores, false); });
}

/// The SparseCore fetches the rows of the next chunk while the TensorCore adds one to this one's.
/// `empty` tells the fetcher that its place in the buffer may be filled again.
void fused_gather(const MachineOptions& options, Lookup& problem, bool wait_for_empty) {
  Machine machine(options);
  auto arrays = problem.arrays(machine);
  const auto shared = machine.empty_ref<float>("chunks", {2, 8, 128});
  const auto fetch = [&](auto table, auto indices, auto, auto chunks, auto full, auto empty) {
    run_scoped(
        [&](auto mine, auto rows) {
          for (int chunk = 0; chunk < 4; ++chunk) {
            sync_copy(indices.at(ds(8 * chunk, 8)), mine);
            sync_gather(table, mine, rows);
            if (wait_for_empty && chunk >= 2) semaphore_wait(empty);
            sync_copy(rows, chunks.at(chunk % 2));
            semaphore_signal(full, 1, Target{.mesh = 0});
          }
        },
        Vmem<std::int32_t>{{8}, "mine"}, Vmem<float>{{8, 128}, "rows"});
  };
  const auto compute = [&](auto, auto, auto out, auto chunks, auto full, auto empty) {
    run_scoped(
        [&](auto tile) {
          for (int chunk = 0; chunk < 4; ++chunk) {
            semaphore_wait(full);
            sync_copy(chunks.at(chunk % 2), tile);
            if (wait_for_empty && chunk < 2) semaphore_signal(empty, 1, Target{.mesh = 1});
            AddOne::body(tile, tile);
            sync_copy(tile, out.at(ds(8 * chunk, 8)));
          }
        },
        Vmem<float>{{8, 128}, "tile"});
  };
  mpmd(machine, "fused_gather",
       std::tuple{part(tensorcore_mesh(machine, 1), compute),
                  part(vector_subcore_mesh(machine, 1, 1), fetch)},
       RegularSem{"full"},
       RegularSem{"empty"})(std::get<0>(arrays), std::get<1>(arrays), std::get<2>(arrays), shared);
}

TEST(TileSparse, FusedGatherOfTwoBodies) {
  for_each_order(with_sparse_cores, [](const MachineOptions& options) {
    Lookup problem;
    fused_gather(options, problem, true);
    problem.check(1);
  });
  // Without "empty" the fetcher overwrites what is still being read: with any order of the cores.
  for_each_order(with_sparse_cores, [](const MachineOptions& options) {
    Lookup problem;
    expect_error(ErrorKind::race, {"'chunks'", "SparseCore 0 subcore 0"},
                 [&] { fused_gather(options, problem, false); });
  });
}

TEST(TileSparse, ScalarSubcoresSteerAndPipelinesShare) {
  for_each_order(with_sparse_cores, [](Machine& machine) {
    AddOne problem{64, 128};
    const auto x = problem.in(machine);
    const auto out = problem.result(machine);
    std::int64_t steps = 0;
    kernel(machine, "share", vector_subcore_mesh(machine, 2, 2), [&](auto from, auto to) {
      emit_pipeline(
          {.grid = {8},
           .in = {BlockSpec::blocks({8, 128}, by_row)},
           .out = {BlockSpec::blocks({8, 128}, by_row)},
           .semantics = {Semantics::parallel},
           .over_cores = true},
          [&](auto a, auto b) {
            ++steps;
            AddOne::body(a, b);
          },
          from, to);
    })(x, out);
    problem.check();
    EXPECT_EQ(steps, 8);
    // A scalar subcore looks at a word and copies accordingly, HBM to HBM.
    Tensor<std::int32_t> row({1}, {5});
    launch(machine, "scalar", scalar_subcore_mesh(machine, 1), Smem<std::int32_t>{{1}, "word"},
           [](auto from, auto which, auto to, auto word) {
             sync_copy(which, word);
             sync_copy(from.at(ds(word.load(0), 1)), to.at(ds(0, 1)));
           })(x, row.in(machine), out);
    EXPECT_EQ(problem.out[3], problem.x[5 * 128 + 3]);
  });
}

}  // namespace
}  // namespace tessera::tile
