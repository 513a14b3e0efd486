// SPDX-License-Identifier: Apache-2.0
#include "host/rms_norm/opencl_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "host/engines/shares.hpp"
#include "host/opencl/specialise.hpp"

// docs/performance.md, "Operators that read rows".
namespace tessera::rms_norm {
namespace {

using engines::ceil_div;
using engines::round_up;
using engines::RowPass;

/// The largest block that makes a difference.
std::int64_t all_rows(const Request& r) { return std::max<std::int64_t>(r.b, 1); }

std::int64_t scratch_of(const Request& r, std::int64_t rows) {
  if (!r.grad_scale) return 0;
  return opencl::region_words(ceil_div(all_rows(r), rows) * sum_words(r));
}

/// Groups that add up sums: of the columns, and for each part.
std::int64_t column_groups(const Request& r, const RowPass& pass) {
  return ceil_div(r.h, column_lanes(pass) * column_items(r, pass));
}

/// Those of them that the device runs at once.
std::int64_t column_slots(const Request& r, const RowPass& pass) {
  if (pass.items == 1) return pass.slots;
  return std::max<std::int64_t>(1, pass.slots * pass.items / column_items(r, pass));
}

/// What groups that take `rows` rows each have to wait for, in elements that the whole machine
/// passes over meanwhile.
double time_of(const Request& r, const engines::Engine& engine, std::int64_t rows) {
  const auto pass = engine.row_pass();
  const std::int64_t groups = ceil_div(all_rows(r), rows), h = r.h;
  // Beside its columns a row takes the way to memory and the sums over work-items: some 3 steps.
  const auto columns = static_cast<double>(round_up(h, pass.step()) + 3 * pass.step());
  double arrays = r.is_backward() && r.grad_x ? 3.0 : 2.0;
  // Sums that the cache has no room for are read and written with every row.
  const double at_work = static_cast<double>(std::min(groups, pass.slots)) * static_cast<double>(h);
  if (r.grad_scale && at_work > static_cast<double>(engine.cached_words())) arrays += 2.0;
  double time = arrays * engines::room_of(groups, pass.slots, static_cast<double>(rows) * columns);
  if (!r.grad_scale) return time;
  // They are written, and added up one after the other.
  time += static_cast<double>(groups) * static_cast<double>(h);
  const std::int64_t each = sums_of_part(groups, pass), parts = ceil_div(groups, each);
  const std::int64_t of_group = column_lanes(pass) * column_items(r, pass),
                     across = column_groups(r, pass);
  const auto one_after_the_other = [&](std::int64_t second, std::int64_t sums) {
    return engines::room_of(across * second, column_slots(r, pass),
                            static_cast<double>(sums * of_group));
  };
  return time + one_after_the_other(1, parts) + (each > 1 ? one_after_the_other(parts, each) : 0.0);
}

/// Eight groups for each that runs at once, which leave little to wait for, or fewer.
std::int64_t best_rows(const Request& r, const engines::Engine& engine) {
  const std::int64_t slots = engine.row_pass().slots;
  const std::int64_t first = ceil_div(all_rows(r), 8 * slots), last = ceil_div(all_rows(r), slots);
  return engines::cheapest(
      first, first + 1, 1, [&](std::int64_t rows) { return rows <= last; },
      [&](std::int64_t rows) { return time_of(r, engine, rows); });
}

}  // namespace

std::int64_t least_scratch_bytes(const Request& r) { return scratch_of(r, all_rows(r)) * 4; }

std::int64_t sums_of_part(std::int64_t groups, const RowPass& pass) {
  // A launch of a CPU takes longer than the sums of its few groups.
  constexpr std::int64_t few = 64;
  if (pass.items == 1 || groups <= few) return 1;
  return static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(groups))));
}

std::int64_t column_items(const Request& r, const RowPass& pass) {
  if (pass.items > 1) return 64;
  return std::clamp<std::int64_t>(r.h / pass.lanes / pass.slots, 1, 16);
}

Schedule make_schedule(const Request& r, const engines::EngineShapes& shapes,
                       const opencl::DeviceFacts& facts,
                       std::shared_ptr<const engines::Engine>& engine) {
  const auto& call = r.base.call;
  std::int64_t bytes = engines::default_workspace_bytes(facts, 0);
  if (call.workspace_bytes) bytes = static_cast<std::int64_t>(*call.workspace_bytes);
  bytes = std::min(bytes, facts.max_allocation_bytes);
  const auto fits = [&](std::int64_t rows) { return scratch_of(r, rows) * 4 <= bytes; };
  const auto given = operators::blocks_as<BlockSizes>(call.block_sizes);
  Schedule s;
  s.source = given ? BlockSource::caller : BlockSource::heuristic;
  double least = std::numeric_limits<double>::max();
  for (const auto& shape : shapes) {
    std::int64_t rows = given ? given->b_block_size : best_rows(r, *shape);
    while (!given && rows < r.b && !fits(rows)) rows *= 2;
    rows = std::min(rows, all_rows(r));
    const double time = time_of(r, *shape, rows);
    if (time >= 0.98 * least) continue;
    least = time;
    engine = shape;
    s.blocks.b_block_size = rows;
  }
  s.scratch_words = scratch_of(r, s.blocks.b_block_size);
  if (!fits(s.blocks.b_block_size) && (call.workspace_bytes || call.block_sizes)) {
    std::string remedy =
        fmt::format("set workspace_bytes to {} (or lend that much)", s.scratch_words * 4);
    if (s.blocks.b_block_size < all_rows(r)) {
      remedy += fmt::format(", or give a larger b_block_size: with {} they take {}", all_rows(r),
                            least_scratch_bytes(r));
    }
    throw Error(ErrorCode::workspace_too_small,
                fmt::format("the sums of grad_scale for B {}, H {} and b_block_size {} take {} "
                            "bytes, but scratch may take {}; {}",
                            r.b, r.h, s.blocks.b_block_size, s.scratch_words * 4, bytes, remedy));
  }
  return s;
}

ConsideredSchedule explain(const Request& r, const engines::Engine& engine, const Schedule& s) {
  const auto pass = engine.row_pass();
  const std::int64_t rows = s.blocks.b_block_size, groups = ceil_div(r.b, rows);
  ConsideredSchedule one{.name = s.name, .is_taken = true, .reason = "it has no other"};
  one.workspace_bytes = 4 * s.scratch_words;
  const auto add = [&](const char* kernel, std::int64_t count, std::int64_t slots, double work,
                       std::int64_t longest, double flops) {
    const double room = engines::room_of(count, slots, static_cast<double>(longest));
    one.launches.push_back({.kernel = kernel,
                            .times = 1,
                            .groups = count,
                            .share = room > 0.0 ? work / room : 0.0,
                            .flops = flops * work});
  };
  // The FLOPs are those of `cost`.
  const auto elements = static_cast<double>(r.b) * static_cast<double>(r.h);
  add(r.is_backward() ? "differentiate" : "normalise", groups, pass.slots, elements, rows * r.h,
      r.is_backward() ? 12 : 4);
  if (r.grad_scale) {
    const std::int64_t each = sums_of_part(groups, pass), parts = ceil_div(groups, each);
    const std::int64_t across = column_groups(r, pass), slots = column_slots(r, pass);
    const std::int64_t columns = std::min(r.h, column_lanes(pass) * column_items(r, pass));
    const auto sums = [&](std::int64_t count) {
      return static_cast<double>(count) * static_cast<double>(r.h);
    };
    if (each > 1) add("merge_sums", across * parts, slots, sums(groups), each * columns, 1);
    add("sum_scale", across, slots, sums(parts), parts * columns, 1);
  }
  one.predicted_share = engines::machine_share(one.launches);
  // Why no other split keeps more of the machine busy.
  if (one.launches.front().share < 0.9) {
    one.reason = fmt::format("each row is one group's, of which {} run at once", pass.slots);
  } else if (one.predicted_share < 0.9) {
    one.reason = fmt::format("the columns of {} groups' sums are too few for all slots", groups);
  }
  return one;
}

}  // namespace tessera::rms_norm
