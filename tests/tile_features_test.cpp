// SPDX-License-Identifier: Apache-2.0
// What docs/tile_reference.md lists and no other test of the tile machine shows.
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "examples/tile/fused_gather.hpp"
#include "examples/tile/move_rows.hpp"
#include "tests/support/tile_fixture.hpp"

namespace tessera::tile {
namespace {

using namespace test;

TEST(TileFeatures, V5eRoutesCopiesToPowersOfTwo) {
  // Device 0 of eight sends; 8 - 5 = 3 the other way round.
  const auto send = [](const char* chip, int target) {
    Machine machine({.chip = find_chip(chip), .devices = 8});
    on_core(machine, "send", Vmem<float>{{8, 128}, "tile"}, DmaSem{"sent"}, DmaSem{"received"},
            [&](auto tile, auto sent, auto received) {
              if (device_index() != 0 && device_index() != target) return;
              auto copy = make_async_remote_copy(tile, tile, sent, received, Target{target, 0});
              if (device_index() == target) return copy.wait_recv();
              copy.start();
              copy.wait_send();
            })();
  };
  for (const int target : {1, 2, 4, 6, 7}) send("v5e", target);
  expect_error(ErrorKind::usage, {"'tile'", "3 devices away", "v5e", "powers of two", "device 0"},
               [&] { send("v5e", 3); });
  expect_error(ErrorKind::usage, {"device 5 is 3 devices away"}, [&] { send("v5e", 5); });
  send("v5p", 3);
}

/// Who does what when, of 2 devices with 2 cores that copy some tiles.
std::vector<std::string> sequence(std::uint64_t seed) {
  std::vector<std::string> events;
  Machine machine({.chip = find_chip("v5p"),
                   .devices = 2,
                   .seed = seed,
                   .recorder = [&](const ScheduleEvent& event) {
                     events.push_back(std::to_string(event.device) + std::to_string(event.core) +
                                      " " + event.from + ">" + event.to + event.semaphore);
                   }});
  Tensor<float> x({2, 64, 128});
  launch(machine, "read", tensorcore_mesh(machine), Vmem<float>{{8, 128}, "tile"},
         [](auto from, auto tile) {
           for (int i = 0; i < 4; ++i) sync_copy(from.at(ds(32 * core_index() + 8 * i, 8)), tile);
           barrier();
         })(x.per_device(machine, "x"));
  return events;
}

TEST(TileFeatures, SeedsReplay) {
  std::set<std::vector<std::string>> orders;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto events = sequence(seed);
    EXPECT_EQ(events, sequence(seed)) << seed;
    EXPECT_EQ(events.size(), 4u * 4 * 2) << "a copy and a wait each";
    orders.insert(events);
  }
  EXPECT_EQ(orders.size(), 5u) << "other seeds, other orders";
}

TEST(TileFeatures, TheRecorderSeesEveryGridPoint) {
  std::vector<Shape> points;
  AddOne problem{16, 256};
  Machine machine({.recorder = [&](const ScheduleEvent& event) {
    if (event.kind == ScheduleEvent::Kind::step) points.push_back(event.grid_point);
  }});
  problem.run(machine, same_blocks({2, 2}, BlockSpec::blocks({8, 128}, by_row_and_column)));
  EXPECT_EQ(points, (std::vector<Shape>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
}

TEST(TileFeatures, DeadlocksAreReportedAtOnce) {
  Machine machine({.chip = find_chip("v5p"), .devices = 4});
  const auto begin = std::chrono::steady_clock::now();
  expect_error(ErrorKind::deadlock,
               {"device 0, core 0", "device 1, core 1", "device 3, core 1", "'never'", "3"}, [&] {
                 launch(machine, "stuck", tensorcore_mesh(machine), RegularSem{"never"},
                        [](auto never) { semaphore_wait(never, 3); })();
               });
  // Within a second is what is asked for; a busy machine may be slow.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(TileFeatures, SemaphoresAreRead) {
  for_each_order([](const MachineOptions& options) {
    Machine machine(options);
    AddOne problem{8, 128};
    on_core(machine, "count", Vmem<float>{{8, 128}, "tile"}, DmaSem{"arrived"},
            RegularSem{"signals"}, [&](auto x, auto tile, auto arrived, auto signals) {
              EXPECT_EQ(semaphore_read(signals), 0);
              semaphore_signal(signals, 3);
              EXPECT_EQ(semaphore_read(signals), 3);
              semaphore_wait(signals, 2);
              EXPECT_EQ(semaphore_read(signals), 1);
              semaphore_wait(signals);
              auto copy = async_copy(x, tile, arrived);
              // An eager copy has moved already.
              EXPECT_EQ(semaphore_read(arrived), options.dma == DmaMode::eager ? 8 * 128 * 4 : 0);
              copy.wait();
              EXPECT_EQ(semaphore_read(arrived), 0);
              expect_error(ErrorKind::usage, {"no semaphore"}, [] { semaphore_read(Semaphore()); });
            })(problem.in(machine));
  });
}

TEST(TileFeatures, ScopesNest) {
  Machine machine;
  AddOne problem{16, 128};
  on_core(machine, "scopes", [](auto x, auto out) {
    for (int i = 0; i < 2; ++i) {
      run_scoped(
          [&](auto outer, auto arrived) {
            async_copy(x.at(ds(8 * i, 8)), outer, arrived).wait();
            run_scoped(
                [&](auto inner) {
                  AddOne::body(outer, inner);
                  sync_copy(inner, out.at(ds(8 * i, 8)));
                },
                Vmem<float>{{8, 128}, "inner"});
          },
          Vmem<float>{{8, 128}, "outer"}, DmaSem{"arrived"});
    }
  })(problem.in(machine), problem.result(machine));
  problem.check();
  EXPECT_EQ(machine.report().vmem_high_water_bytes, 2 * 8 * 128 * 4) << "both, once at a time";
  expect_error(ErrorKind::semaphore, {"'inner'"}, [&] {
    on_core(machine, "leaves", [] {
      run_scoped(
          [](auto) {
            run_scoped([](auto signals) { semaphore_signal(signals); }, RegularSem{"inner"});
          },
          RegularSem{"outer"});
    })();
  });
}

TEST(TileFeatures, RefsEndWithTheirScope) {
  Machine machine;
  expect_error(ErrorKind::usage, {"'tile'", "core 0", "run_scoped"}, [&] {
    on_core(machine, "keeps", [] {
      Ref<float> kept;
      run_scoped([&](auto tile) { kept = tile; }, Vmem<float>{{8, 128}, "tile"});
      kept.store(1.0f, 0, 0);
    })();
  });
}

TEST(TileFeatures, ArraysOfSemaphores) {
  for_each_order([](Machine& machine) {
    AddOne problem{32, 128};
    on_core(machine, "two_slots", Vmem<float>{{2, 8, 128}, "slots"}, DmaSems<2>{"arrived"},
            [](auto x, auto out, auto slots, auto arrived) {
              const auto fetch = [&](int i) {
                const auto slot = static_cast<std::size_t>(i % 2);
                return make_async_copy(x.at(ds(8 * i, 8)), slots.at(slot), arrived[slot]);
              };
              fetch(0).start();
              run_scoped(
                  [&](auto tile, auto left) {
                    for (int i = 0; i < 4; ++i) {
                      if (i < 3) fetch(i + 1).start();
                      fetch(i).wait();
                      AddOne::body(slots.at(i % 2), tile);
                      async_copy(tile, out.at(ds(8 * i, 8)), left[0]).wait();
                    }
                  },
                  Vmem<float>{{8, 128}, "tile"}, DmaSems<1>{"left"});
            })(problem.in(machine), problem.result(machine));
    problem.check();
  });
  Machine machine;
  expect_error(ErrorKind::deadlock, {"'ready 1'"}, [&] {
    on_core(machine, "waits", RegularSems<2>{"ready"}, [](auto ready) {
      semaphore_signal(ready[0]);
      semaphore_wait(ready[1]);
    })();
  });
}

TEST(TileFeatures, PipelinesNest) {
  // The outer pipeline hands on blocks where they are, in HBM; the inner one brings them in tiles.
  for_each_order([](Machine& machine) {
    AddOne problem{64, 512};
    BlockSpec block = BlockSpec::blocks({16, 256}, by_row_and_column);
    block.shape.space = MemorySpace::hbm;
    const auto tile = BlockSpec::blocks({8, 128}, by_row_and_column);
    on_core(machine, "nested", [&](auto x, auto out) {
      emit_pipeline(
          {.grid = {4, 2}, .in = {block}, .out = {block}},
          [&](auto from, auto to) {
            EXPECT_EQ(from.extents(), (Shape{16, 256}));
            emit_pipeline({.grid = {2, 2}, .in = {tile}, .out = {tile}}, AddOne::body, from, to);
          },
          x, out);
    })(problem.in(machine), problem.result(machine));
    problem.check();
    EXPECT_EQ(machine.report().bytes_copied, 2 * 64 * 512 * 4);
    EXPECT_EQ(machine.report().vmem_high_water_bytes, 4 * 8 * 128 * 4);
  });
}

/// Element i is i * `factor` % `range` - `below`: numbers in no order, each once if the two have no
/// common divisor.
template <class T>
Tensor<T> shuffled(Shape shape, std::size_t factor, std::size_t range, int below = 0) {
  Tensor<T> tensor(std::move(shape));
  for (std::size_t i = 0; T & x : tensor.data) {
    x = static_cast<T>(static_cast<int>(i++ * factor % range) - below);
  }
  return tensor;
}

TEST(TileFeatures, FusedGatherOfTheExamples) {
  for (const char* chip : {"v5p", "v6e", "v7"}) {
    for_each_order({.chip = find_chip(chip)}, [](Machine& machine) {
      // Small integers, which one bf16 pass multiplies exactly.
      auto table = shuffled<float>({64, 128}, 37, 17, 8),
           w = shuffled<float>({128, 128}, 11, 13, 6);
      auto indices = shuffled<std::int32_t>({32}, 29, 64);
      Tensor<float> out({32, 128});
      tile_examples::fused_gather(machine, table.in(machine), indices.in(machine), w.in(machine),
                                  out.in(machine), 8);
      for (std::size_t i = 0; i < 32; ++i) {
        const auto row = static_cast<std::size_t>(indices.data[i]);
        for (std::size_t j = 0; j < 128; ++j) {
          float sum = 0;
          for (std::size_t k = 0; k < 128; ++k) {
            sum += table.data[row * 128 + k] * w.data[k * 128 + j];
          }
          ASSERT_EQ(out.data[i * 128 + j], sum) << i << " " << j;
        }
      }
    });
  }
}

TEST(TileFeatures, GathersAndScattersInFlight) {
  // 5 chunks of 8 rows; the indices of either side are a permutation.
  const auto move = [](const MachineOptions& options, std::int32_t last) {
    Machine machine(options);
    Tensor<float> x({64, 128}, iota(64 * 128)), out({40, 128});
    auto from = shuffled<std::int32_t>({40}, 29, 64), to = shuffled<std::int32_t>({40}, 7, 40);
    to.data.back() = last;
    tile_examples::move_rows(machine, x.in(machine, "x"), from.in(machine), out.in(machine, "out"),
                             to.in(machine), 8);
    for (std::size_t i = 0; i < 40 * 128; ++i) {
      const auto at = [&](const auto& rows) {
        return static_cast<std::size_t>(rows.data[i / 128]) * 128 + i % 128;
      };
      ASSERT_EQ(out.data[at(to)], x.data[at(from)]) << i;
    }
    const Report& report = machine.report();
    EXPECT_EQ(report.buffer("x").bytes_read, 40 * 128 * 4);
    EXPECT_EQ(report.buffer("out").bytes_written, 40 * 128 * 4);
  };
  for_each_order({.chip = find_chip("v5p")}, [&](const MachineOptions& options) {
    move(options, 39 * 7 % 40);
    // The chunk before the last is still on its way to that row.
    expect_error(ErrorKind::race, {"'out'"}, [&] { move(options, 31 * 7 % 40); });
    expect_error(ErrorKind::bounds, {"'out'", "40"}, [&] { move(options, 40); });
  });
}

// What nobody waits for is found, and so is a row that is read before it is there.
TEST(TileFeatures, GathersAreWaitedFor) {
  const auto gather = [](const MachineOptions& options, bool wait, bool read) {
    Machine machine(options);
    const auto x = machine.empty_ref<float>("x", {16, 128});
    launch(machine, "gather", vector_subcore_mesh(machine, 1, 1),
           Vmem<std::int32_t>{{8}, "indices"}, Vmem<float>{{8, 128}, "rows"}, DmaSem{"arrived"},
           [&](auto from, auto indices, auto rows, auto arrived) {
             for (int i = 0; i < 8; ++i) indices.store(2 * i, i);
             Copy copy = make_async_gather(from, indices, rows, arrived);
             copy.start();
             if (read) rows.load(0, 0);
             if (wait) copy.wait();
           })(x);
  };
  for_each_order([&](const MachineOptions& options) {
    gather(options, true, false);
    expect_error(ErrorKind::unfinished_dma, {"arrived"}, [&] { gather(options, false, false); });
    expect_error(ErrorKind::race, {"'rows'"}, [&] { gather(options, true, true); });
  });
}

TEST(TileFeatures, MemoryOfOthers) {
  // A body can keep a ref that another core was given.
  for_each_order([](const MachineOptions& options) {
    const auto keep = [&](int devices, auto choose) {
      MachineOptions several = options;
      several.devices = devices;
      Machine machine(several);
      Tensor<float> x({devices, 8, 128});
      Ref<float> kept;
      Semaphore kept_signals;
      launch(machine, "keeps", tensorcore_mesh(machine, devices == 1 ? 2 : 1),
             Vmem<float>{{8, 128}, "tile"}, RegularSem{"signals"},
             [&](auto in_hbm, auto tile, auto signals) {
               const bool first = device_index() == 0 && core_index() == 0;
               if (first) {
                 kept = choose(in_hbm, tile);
                 kept_signals = signals;
               }
               barrier();
               if (first) return;
               if (choose(in_hbm, tile).name() == "x") {
                 sync_copy(kept, tile);
               } else if (devices == 1) {
                 kept.load(0, 0);
               } else {
                 semaphore_signal(kept_signals);
               }
             })(x.per_device(machine, "x"));
    };
    const auto scratch = [](auto, auto tile) { return tile; };
    expect_error(ErrorKind::usage, {"'tile'", "core 1", "another core's scratch"},
                 [&] { keep(1, scratch); });
    expect_error(ErrorKind::usage, {"'x'", "device 1", "another device's HBM"},
                 [&] { keep(2, [](auto in_hbm, auto) { return in_hbm; }); });
    expect_error(ErrorKind::usage, {"'signals'", "device 1", "another core"},
                 [&] { keep(2, scratch); });
  });
}

}  // namespace
}  // namespace tessera::tile
