// SPDX-License-Identifier: Apache-2.0
#include "host/linear_cross_entropy/opencl_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "host/dispatch/host_views.hpp"
#include "host/engines/loss_rows.hpp"
#include "host/loss/rows.hpp"
#include "tuning/lookup/lookup.hpp"

namespace tessera::linear_cross_entropy {
namespace {

using engines::ceil_div;
using engines::round_up;

constexpr std::int64_t most_words = std::int64_t{1} << 44;  ///< of scratch: beyond any device

/// Columns of w and grad_w that fit one allocation, densely or as they lie.
std::int64_t columns_per_binding(const Request& r, const opencl::DeviceFacts& facts) {
  const std::int64_t v = r.loss.v;
  std::int64_t columns = std::max<std::int64_t>(v, 1);
  const View* views[] = {&r.w, &r.gradients.grad_w};
  for (const View* view : views) {
    if (!*view || view->is_device() ||
        dispatch::footprint_bytes(*view) <= facts.max_allocation_bytes) {
      continue;
    }
    const auto column_bytes =
        std::max<std::int64_t>(1, r.h) * static_cast<std::int64_t>(size_of(view->dtype()));
    const std::int64_t fit = facts.max_allocation_bytes / column_bytes;
    if (fit < 1) {
      throw Error(ErrorCode::out_of_memory,
                  fmt::format("one column of w has {} bytes, more than the device's maximum "
                              "allocation of {}; use another implementation",
                              column_bytes, facts.max_allocation_bytes));
    }
    columns = std::min(columns, fit >= 64 ? fit / 64 * 64 : fit);
  }
  return columns;
}

void check_blocks(const BlockSizes& blocks, const engines::Engine& engine) {
  const auto rule = engine.rule();
  const struct {
    const char* name;
    std::int64_t value, multiple;
  } checks[] = {{"b_block_size", blocks.b_block_size, rule.b_multiple},
                {"h_block_size", blocks.h_block_size, rule.h_multiple},
                {"v_block_size", blocks.v_block_size, rule.v_multiple}};
  for (const auto& check : checks) {
    if (check.value < 1 || check.value % check.multiple != 0) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("block_sizes: {} = {} is illegal for opencl.{}: it must be a positive "
                      "multiple of {}",
                      check.name, check.value, engine.name(), check.multiple));
    }
  }
}

/// What a choice of chunk and range leads to.
void complete(const Request& request, const engines::Engine& engine, Schedule& s) {
  s.chunks = std::max<std::int64_t>(1, ceil_div(s.rows, s.chunk_rows));
  s.v_range = std::clamp<std::int64_t>(s.v_range, 1, std::max<std::int64_t>(s.v_piece, 1));
  if (s.grad_w == Schedule::GradW::range && s.chunks == 1) s.grad_w = Schedule::GradW::direct;
  s.slices =
      std::max<std::int64_t>(1, ceil_div(s.v_piece, s.blocks.v_block_size)) *
      ceil_div(std::max<std::int64_t>(request.loss.v, 1), std::max<std::int64_t>(s.v_piece, 1));
  s.h_padded = request.h + engine.row_padding();
  s.forward_steps = engine.steps(s.blocks.v_block_size, request.h, false);
  s.grad_w_steps = engine.steps(s.v_range, s.chunk_rows, true);
  s.grad_x_steps = engine.steps(request.h, engine.v_panel(s.v_range), true);
  s.scratch_words = engines::loss_rows_words(request.loss, engine.tile_n()) +
                    regions_of(request, engine, s).total();
}

struct Limits {
  std::int64_t words;       ///< of all scratch
  std::int64_t allocation;  ///< words of one region
};

bool fits(const Request& request, const engines::Engine& engine, Schedule& s,
          const Limits& limits) {
  complete(request, engine, s);
  return s.scratch_words <= limits.words &&
         regions_of(request, engine, s).largest() <= limits.allocation;
}

/// The largest chunk not above `most` that fits, evened out over the rows; false: none does.
bool fit_chunk(const Request& request, const engines::Engine& engine, Schedule& s,
               const Limits& limits, std::int64_t most) {
  const std::int64_t tile = engine.tile_n();
  std::int64_t low = 0;
  std::int64_t high = round_up(std::max<std::int64_t>(most, 1), tile) / tile;
  while (low < high) {  // words grow with the chunk, so bisection finds the edge
    const std::int64_t middle = (low + high + 1) / 2;
    Schedule trial = s;
    trial.chunk_rows = middle * tile;
    if (fits(request, engine, trial, limits)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  if (low == 0) return false;
  const std::int64_t chunks = std::max<std::int64_t>(1, ceil_div(s.rows, low * tile));
  s.chunk_rows = round_up(std::max<std::int64_t>(ceil_div(s.rows, chunks), 1), tile);
  return fits(request, engine, s, limits);
}

/// The largest range of the vocabulary that fits, in whole blocks where possible.
bool fit_range(const Request& request, const engines::Engine& engine, Schedule& s,
               const Limits& limits, std::int64_t most) {
  const std::int64_t unit = engine.rule().v_multiple;
  std::int64_t low = 0;
  std::int64_t high = ceil_div(std::max<std::int64_t>(most, 1), unit);
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    Schedule trial = s;
    trial.v_range = middle * unit;
    if (fits(request, engine, trial, limits)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  if (low == 0) return false;
  const std::int64_t ranges = std::max<std::int64_t>(1, ceil_div(s.v_piece, low * unit));
  s.v_range = round_up(std::max<std::int64_t>(ceil_div(s.v_piece, ranges), 1), unit);
  return fits(request, engine, s, limits);
}

/// The schedules a request may use, best first; nothing: none fits the limits.
std::optional<Schedule> choose(const Request& r, const engines::Engine& engine,
                               const Schedule& base, const Limits& limits) {
  const std::int64_t block = std::max(base.blocks.b_block_size, engine.tile_n());
  const std::int64_t all = round_up(std::max<std::int64_t>(base.rows, 1), engine.tile_n());
  const std::int64_t v = std::max<std::int64_t>(base.v_piece, 1);
  const bool sum_in_place = !r.gradients.grad_w || r.gradients.grad_w.dtype() == DType::f32;
  Schedule s = base;
  if (!r.loss.wants_gradients()) {
    s.name = "streamed";
    s.v_range = v;
    if (fit_chunk(r, engine, s, limits, std::min(all, block))) return s;
    return std::nullopt;
  }
  // Fewer rows than this a chunk, and reading all of w twice for each costs more than recomputing.
  const std::int64_t worthwhile = std::min<std::int64_t>(all, round_up(64, engine.tile_n()));
  if (r.loss.pass == Pass::value_and_grad) {
    s.stored_logits = true;
    s.v_range = v;
    s.name = "one_chunk";
    s.chunk_rows = all;
    if (fits(r, engine, s, limits)) return s;
    s.name = sum_in_place ? "chunked" : "chunked_f32_grad_w";
    s.grad_w = sum_in_place ? Schedule::GradW::direct : Schedule::GradW::full;
    if (fit_chunk(r, engine, s, limits, all) && s.chunk_rows >= worthwhile) return s;
  }
  // Recomputed logits: rows outside where grad_w is summed in place, else the vocabulary outside.
  for (const bool outer : {!sum_in_place, sum_in_place}) {
    // Values come first for all rows, so that a row-outer order would need a second pass anyway.
    if (!outer && r.loss.pass == Pass::value_and_grad) continue;
    if (!outer && !sum_in_place) continue;
    for (std::int64_t chunk = std::min(all, round_up(block, engine.tile_n()));
         chunk >= engine.tile_n(); chunk = chunk / 2 / engine.tile_n() * engine.tile_n()) {
      s = base;
      s.v_outer = outer;
      s.chunk_rows = chunk;
      s.grad_w = outer ? Schedule::GradW::range : Schedule::GradW::direct;
      s.name = outer ? "v_outer" : chunk >= all ? "one_chunk" : "chunked";
      // dz of a range is used twice while it is in the last-level cache: no more than fits there.
      const std::int64_t cached =
          std::max<std::int64_t>(engine.rule().v_multiple, (std::int64_t{4} << 20) / chunk / 8 * 8);
      if (fit_range(r, engine, s, limits, std::min(v, cached))) {
        // A narrow range repacks x too often; a smaller chunk may allow a wider one.
        if (s.v_range >= std::min<std::int64_t>(v, 64) || chunk == engine.tile_n()) return s;
      }
      if (chunk == engine.tile_n()) break;
    }
  }
  // Last: stored logits with the smallest chunks.
  if (r.loss.pass == Pass::value_and_grad) {
    s = base;
    s.stored_logits = true;
    s.v_range = v;
    s.name = sum_in_place ? "chunked" : "chunked_f32_grad_w";
    s.grad_w = sum_in_place ? Schedule::GradW::direct : Schedule::GradW::full;
    if (fit_chunk(r, engine, s, limits, all)) return s;
  }
  return std::nullopt;
}

BlockSizes clamp_to_problem(BlockSizes blocks, const Request& r, const engines::Engine& engine) {
  const auto rule = engine.rule();
  const auto limit = [](std::int64_t block, std::int64_t extent, std::int64_t multiple) {
    return std::min(block, round_up(std::max<std::int64_t>(extent, 1), multiple));
  };
  blocks.b_block_size = limit(blocks.b_block_size, r.loss.b, rule.b_multiple);
  blocks.h_block_size = limit(blocks.h_block_size, r.h, rule.h_multiple);
  blocks.v_block_size = limit(blocks.v_block_size, r.loss.v, rule.v_multiple);
  return blocks;
}

Schedule base_schedule(const Request& r, const opencl::DeviceFacts& facts) {
  Schedule s;
  s.rows = counted_rows(r.loss);
  s.v_piece = columns_per_binding(r, facts);
  return s;
}

}  // namespace

std::int64_t counted_rows(const loss::LossRequest& r) {
  if (!r.labels || r.labels.is_device() || !r.labels.host_data()) return r.b;
  const loss::RowOffsets offsets(r.labels, r.labels.rank());
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < r.b; ++row) {
    count += loss::load_int(r.labels.host_data(), r.labels.dtype(), offsets(row)) !=
             r.options.ignore_index;
  }
  return count;
}

std::int64_t Regions::total() const {
  std::int64_t sum = 0;
  for (auto words : {packed_rows, packed_columns, stats, coefficients, dz, sums_x, sums_w,
                     sums_bias, pack, tile}) {
    if (words > 0) sum += engines::region_words(words);
  }
  return sum;
}

std::int64_t Regions::largest() const {
  return std::max({packed_rows, packed_columns, stats, coefficients, dz, sums_x, sums_w, sums_bias,
                   pack, tile});
}

Regions regions_of(const Request& r, const engines::Engine& engine, const Schedule& s) {
  const auto& g = r.gradients;
  const bool grads = r.loss.wants_gradients();
  Regions w;
  w.packed_rows = s.chunk_rows * r.h;
  if (r.loss.wants_values()) w.stats = s.slices * 8 * s.chunk_rows;
  std::int64_t groups = engine.groups(s.slices);
  w.pack = groups * s.forward_steps.pack_words;
  w.tile = groups * s.forward_steps.tile_words;
  if (!grads) return w;
  w.coefficients = 5 * s.chunk_rows;
  w.dz = s.chunk_rows * (s.stored_logits ? r.loss.v : s.v_range);
  if (g.grad_w) {
    w.packed_columns = s.chunk_rows * round_up(r.h, engine.tile_n());
    if (s.grad_w == Schedule::GradW::range) w.sums_w = s.v_range * r.h;
    if (s.grad_w == Schedule::GradW::full) w.sums_w = r.loss.v * r.h;
    groups = engine.groups(ceil_div(s.v_range, s.grad_w_steps.tile_m));
    w.pack = std::max(w.pack, groups * s.grad_w_steps.pack_words);
    w.tile = std::max(w.tile, groups * s.grad_w_steps.tile_words);
  }
  if (g.grad_x) {
    w.sums_x = (s.v_outer ? s.chunks : 1) * s.chunk_rows * s.h_padded;
    groups = engine.groups(ceil_div(r.h, s.grad_x_steps.tile_m));
    w.pack = std::max(w.pack, groups * s.grad_x_steps.pack_words);
    w.tile = std::max(w.tile, groups * s.grad_x_steps.tile_words);
  }
  if (g.grad_bias) w.sums_bias = r.loss.v;
  return w;
}

std::int64_t minimum_workspace_bytes(const Request& request, const engines::Engine& engine,
                                     const opencl::DeviceFacts& facts) {
  Schedule base = base_schedule(request, facts);
  base.blocks = clamp_to_problem(request.execution.block_sizes.value_or(BlockSizes::get_default()),
                                 request, engine);
  // Bisect the limit that some schedule accepts; 64 bytes is a region's granularity.
  std::int64_t low = 0;
  std::int64_t high = most_words;
  while (high - low > 16) {
    const std::int64_t middle = (low + high) / 2;
    const Limits limits{middle, facts.max_allocation_bytes / 4};
    if (choose(request, engine, base, limits)) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return high * 4;
}

Schedule make_schedule(const Request& r, const engines::Engine& engine,
                       const opencl::DeviceFacts& facts, const DeviceInfo& info) {
  if (r.execution.block_sizes) check_blocks(*r.execution.block_sizes, engine);
  const std::string dtype =
      r.x.dtype() == r.w.dtype()
          ? to_string(r.x.dtype())
          : fmt::format("{}:{}", to_string(r.x.dtype()), to_string(r.w.dtype()));
  const tuning::Key key{"linear_cross_entropy",
                        info.name,
                        info.type,
                        to_string(r.loss.pass),
                        "opencl." + engine.name(),
                        dtype,
                        {r.loss.b, r.h, r.loss.v}};
  const auto rule = engine.rule();
  const auto decision = tuning::decide<BlockSizes>(
      r.execution.block_sizes, key,
      [&](const BlockSizes& b) {
        return BlockSizes{round_up(b.b_block_size, rule.b_multiple),
                          round_up(b.h_block_size, rule.h_multiple),
                          round_up(b.v_block_size, rule.v_multiple)};
      },
      [&]() -> std::optional<BlockSizes> {
        const auto blocks = engine.heuristic(r.loss.b, r.h, r.loss.v);
        return BlockSizes{blocks.b, blocks.h, blocks.v};
      });
  Schedule base = base_schedule(r, facts);
  base.blocks = clamp_to_problem(decision.block_sizes, r, engine);
  base.source = decision.source;

  std::int64_t bytes = 0;
  if (r.execution.workspace_bytes) {
    bytes = static_cast<std::int64_t>(*r.execution.workspace_bytes);
  } else if (facts.is_gpu) {
    bytes = facts.global_memory_bytes / 16;
  } else {
    bytes = std::max<std::int64_t>(std::int64_t{64} << 20, 256 * 4 * r.loss.v);
  }
  const std::int64_t allocation = facts.max_allocation_bytes / 4;
  auto schedule = choose(r, engine, base, {bytes / 4, allocation});
  if (!schedule && !r.execution.workspace_bytes) {
    // The default is a wish, not a bound: a call without workspace_bytes runs if it can at all.
    schedule = choose(r, engine, base, {minimum_workspace_bytes(r, engine, facts) / 4, allocation});
  }
  if (!schedule && !choose(r, engine, base, {most_words, allocation})) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("no schedule of opencl.{} for B {}, H {}, V {} keeps each piece of "
                            "scratch within the device's maximum allocation of {} bytes; give "
                            "smaller block_sizes, or use another implementation",
                            engine.name(), r.loss.b, r.h, r.loss.v, facts.max_allocation_bytes));
  }
  if (!schedule) {
    throw Error(
        ErrorCode::workspace_too_small,
        fmt::format("workspace_bytes: {} is too small for B {}, H {}, V {} on opencl.{}; it "
                    "needs at least {}",
                    bytes, r.loss.b, r.h, r.loss.v, engine.name(),
                    minimum_workspace_bytes(r, engine, facts)));
  }
  return *schedule;
}

}  // namespace tessera::linear_cross_entropy
