// SPDX-License-Identifier: Apache-2.0
#include "tests/tile_planted/programs.hpp"

namespace tessera::tile::test {

namespace {

using enum ErrorKind;

/// A body with x, out, a tile, a semaphore, on one core.
template <class Body, class... Scratch>
auto one_core(std::int64_t rows, Body body, Scratch... scratch) {
  return [=](const MachineOptions& options) {
    Machine machine(options);
    AddOne problem{rows};
    on_core(machine, "planted", Vmem<float>{{8, 128}, "tile"}, DmaSem{"arrived"}, scratch..., body)(
        problem.in(machine), problem.result(machine));
  };
}

void missing_wait(Ref<float> x, Ref<float> out, Ref<float> tile, DmaSemaphore arrived) {
  async_copy(x, tile, arrived);
  AddOne::body(tile, tile);
  sync_copy(tile, out);
}

void wait_after_use(Ref<float> x, Ref<float> out, Ref<float> tile, DmaSemaphore arrived) {
  Copy copy = async_copy(x, tile, arrived);
  const float first = tile.load(0, 0);
  copy.wait();
  tile.store(first + 1, 0, 0);
  sync_copy(tile, out);
}

void copy_nobody_waits_for(Ref<float> x, Ref<float> out, Ref<float> tile, DmaSemaphore arrived,
                           Ref<float> other) {
  sync_copy(x, tile);
  AddOne::body(tile, tile);
  sync_copy(tile, out);
  async_copy(x, other, arrived);
}

void one_wait_for_two_copies(Ref<float> x, Ref<float> out, Ref<float> tile, DmaSemaphore arrived,
                             Ref<float> other) {
  Copy first = async_copy(x.at(ds(0, 8)), tile, arrived);
  Copy second = async_copy(x.at(ds(8, 8)), other, arrived);
  first.wait();
  AddOne::body(tile, tile);
  AddOne::body(other, other);
  second.wait();
  sync_copy(tile, out.at(ds(0, 8)));
  sync_copy(other, out.at(ds(8, 8)));
}

void tile_reused_while_it_leaves(Ref<float> x, Ref<float> out, Ref<float> tile,
                                 DmaSemaphore leaving) {
  std::vector<Copy> copies;
  for (int i = 0; i < 2; ++i) {
    sync_copy(x.at(ds(8 * i, 8)), tile);
    AddOne::body(tile, tile);
    copies.push_back(async_copy(tile, out.at(ds(8 * i, 8)), leaving));
  }
  for (Copy& copy : copies) copy.wait();
}

void wrong_slot(Ref<float> x, Ref<float> out, Ref<float> tile, DmaSemaphore, Ref<float> slots,
                DmaSemaphore even, DmaSemaphore odd) {
  const auto fetch = [&](int i) {
    return make_async_copy(x.at(ds(8 * i, 8)), slots.at(i % 2), i % 2 == 0 ? even : odd);
  };
  Copy next = fetch(0);
  next.start();
  for (int i = 0; i < 4; ++i) {
    Copy current = next;
    if (i < 3) {
      next = fetch(i + 1);
      next.start();
    }
    current.wait();
    AddOne::body(slots.at((i + 1) % 2), tile);
    sync_copy(tile, out.at(ds(8 * i, 8)));
  }
}

void copy_started_twice(Ref<float> x, Ref<float> out, Ref<float> tile, DmaSemaphore arrived) {
  Copy copy = make_async_copy(x, tile, arrived);
  copy.start();
  copy.start();
  copy.wait();
  AddOne::body(tile, tile);
  sync_copy(tile, out);
}

void wait_for_more_than_came(Ref<float> x, Ref<float> out, Ref<float> tile, DmaSemaphore arrived) {
  async_copy(x.at(ds(0, 8)), tile, arrived);
  make_async_copy(x, out, arrived).wait();
}

void copy_that_adds(const MachineOptions& options) {
  Machine machine(options);
  AddOne problem{8};
  problem.out.assign(problem.out.size(), 10.0f);
  on_core(machine, "planted", Vmem<float>{{8, 128}, "tile"}, DmaSem{"arrived"},
          [](auto x, auto out, auto tile, auto arrived) {
            sync_copy(x, tile);
            async_copy(tile, out, arrived, {.add = true}).wait();
          })(problem.in(machine), problem.result(machine));
  if (problem.out[5] != problem.x[5] + 10) ADD_FAILURE() << "not added";
}

void priority_7(Ref<float> x, Ref<float>, Ref<float> tile, DmaSemaphore arrived) {
  async_copy(x, tile, arrived, {.priority = 7}).wait();
}

/// The second tile is read at a row that comes from data, and written at another.
auto rows_from_data(std::int32_t read, std::int32_t write) {
  return [=](const MachineOptions& options) {
    Machine machine(options);
    AddOne problem{16};
    Tensor<std::int32_t> starts({4}, {0, read, 0, write});
    on_core(machine, "planted", Vmem<float>{{8, 128}, "tile"}, Smem<std::int32_t>{{4}, "at"},
            [](auto rows, auto x, auto out, auto tile, auto at) {
              sync_copy(rows, at);
              for (int i = 0; i < 2; ++i) {
                sync_copy(x.at(ds(at.load(i), 8)), tile);
                sync_copy(tile, out.at(ds(at.load(2 + i), 8)));
              }
            })(starts.in(machine), problem.in(machine), problem.result(machine));
  };
}

void unaligned_rows(Ref<float> x, Ref<float>, Ref<float> tile, DmaSemaphore) {
  sync_copy(x.at(ds(3, 8)), tile);
}

void half_of_the_lanes(Ref<float> x, Ref<float> out, Ref<float> tile, DmaSemaphore) {
  sync_copy(x, tile);
  sync_copy(tile.at(all, ds(0, 64)), out.at(all, ds(0, 64)));
}

void int8_rows(const MachineOptions& options) {
  Machine machine(options);
  const auto x = machine.empty_ref<std::int8_t>("x", {32, 128});
  on_core(machine, "planted", Vmem<std::int8_t>{{32, 128}, "tile"},
          [](auto from, auto tile) { sync_copy(from.at(ds(8, 8)), tile.at(ds(8, 8))); })(x);
}

void element_beyond_the_end(const MachineOptions& options) {
  Machine machine(options);
  Tensor<std::int32_t> table({4}, {1, 1, 1, 4});
  on_core(machine, "planted", Smem<std::int32_t>{{4}, "numbers"}, [](auto from, auto to) {
    sync_copy(from, to);
    to.load(to.load(3));
  })(table.in(machine));
}

void written_after_freeze(const MachineOptions& options) {
  Machine machine(options);
  AddOne problem{8};
  auto add_in_place =
      on_core(machine, "planted", Vmem<float>{{8, 128}, "tile"}, [](auto x, auto tile) {
        sync_copy(x, tile);
        AddOne::body(tile, tile);
        sync_copy(tile, x);
      });
  const auto array = problem.result(machine);
  add_in_place(array);
  machine.freeze(array);
  add_in_place(array);
}

}  // namespace

std::vector<Planted> planted_copies() {
  const Vmem<float> other{{8, 128}, "other"};
  const auto hbm_dereferenced = [](auto x, auto out, auto, auto) { AddOne::body(x, out); };
  const auto extents_differ = [](auto x, auto, auto tile, auto arrived) {
    async_copy(x, tile, arrived).wait();
  };
  const auto nothing = [](auto...) {};
  const auto scope = [](auto x, auto out, auto tile, auto leaving) {
    run_scoped(
        [&](auto own) {
          sync_copy(x, own);
          async_copy(own, out, leaving);
        },
        Vmem<float>{{8, 128}, "own"});
    make_async_copy(tile, out, leaving).wait();
  };
  const auto not_initialised = [](auto x, auto out, auto tile, auto, auto total) {
    sync_copy(x, tile);
    total.store(total.load(0, 0) + tile.load(0, 0), 0, 0);
    sync_copy(total, out);
  };
  return {
      // On wait the copy never runs, so that there is nothing to be read too early.
      {"missing_wait", race, "'tile'", one_core(8, missing_wait), "", unfinished_dma},
      {"wait_after_use", race, "'tile'", one_core(8, wait_after_use)},
      {"copy_nobody_waits_for", unfinished_dma, "'arrived'",
       one_core(8, copy_nobody_waits_for, other)},
      {"one_wait_for_two_copies", race, "copy", one_core(16, one_wait_for_two_copies, other)},
      {"tile_reused_while_it_leaves", race, "'tile'", one_core(16, tile_reused_while_it_leaves)},
      {"wrong_slot", race, "'slots'",
       one_core(32, wrong_slot, Vmem<float>{{2, 8, 128}, "slots"}, DmaSem{"even"}, DmaSem{"odd"})},
      {"copy_started_twice", usage, "'tile'", one_core(8, copy_started_twice)},
      {"wait_for_more_than_came", deadlock, "'arrived'", one_core(16, wait_for_more_than_came)},
      {"copy_that_adds", {}, "", copy_that_adds, "right"},
      {"priority_7", usage, "priority 7", one_core(8, priority_7)},
      {"negative_start", bounds, "'x'", rows_from_data(-16, 8)},
      {"read_beyond_the_end", bounds, "'x'", rows_from_data(16, 8)},
      {"off_by_one", bounds, "'x'", rows_from_data(9, 8)},
      {"unaligned_rows", layout, "'x'", one_core(16, unaligned_rows)},
      {"half_of_the_lanes", layout, "'tile'", one_core(8, half_of_the_lanes)},
      {"int8_rows", layout, "'x'", int8_rows},
      {"write_beyond_the_end", bounds, "'out'", rows_from_data(8, 16)},
      {"element_beyond_the_end", bounds, "'numbers'", element_beyond_the_end},
      {"hbm_dereferenced", space, "'x'", one_core(8, hbm_dereferenced)},
      {"extents_differ", usage, "'tile'", one_core(16, extents_differ)},
      {"vmem_too_large", vmem, "huge", one_core(8, nothing, Vmem<float>{{8192 * 64, 128}, "huge"})},
      {"smem_too_large", smem, "huge", one_core(8, nothing, Smem<std::int32_t>{{2 << 20}, "huge"})},
      {"scope_ends_before_its_copy", unfinished_dma, "'own'", one_core(8, scope)},
      {"written_after_freeze", usage, "'out'", written_after_freeze},
      {"scratch_not_initialised",
       {},
       "",
       [=](const MachineOptions& options) {
         Machine machine(options);
         AddOne problem{8};
         on_core(machine, "planted", Vmem<float>{{8, 128}, "tile"}, DmaSem{"arrived"},
                 Vmem<float>{{8, 128}, "total"},
                 not_initialised)(problem.in(machine), problem.result(machine));
         if (problem.out[0] == problem.out[0]) ADD_FAILURE() << "no NaN";
       },
       "NaN"},
  };
}

}  // namespace tessera::tile::test
