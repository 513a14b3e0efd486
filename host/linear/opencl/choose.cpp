// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "host/dispatch/knobs.hpp"
#include "host/engines/shares.hpp"
#include "host/linear/opencl/plan.hpp"
#include "host/linear/opencl/reasons.hpp"
#include "host/loss/opencl_rows.hpp"

namespace tessera::linear {

using engines::ceil_div;
using engines::round_up;

namespace {

/// Of which a range of the vocabulary is a multiple.
std::int64_t range_unit(const Request& request, const engines::Engine& engine, const Schedule& s) {
  const std::int64_t block =
      s.logits_in_grad_w ? kept_columns(request.gradients.grad_w, engine) : 1;
  return std::lcm(block, engine.rule().m_multiple);
}

/// Columns of a range whose dz, of so many rows, is used twice, and w of it too, while the cache
/// has them (Engine::cached_words); more where products of that would leave cores without work.
std::int64_t best_range(const Request& r, const engines::Engine& engine, const Schedule& s,
                        std::int64_t unit, std::int64_t rows) {
  std::int64_t range = engine.cached_words() / std::max<std::int64_t>(rows, 1) / unit * unit;
  // Those of every chunk of rows count.
  const std::int64_t chunks = ceil_div(s.rows, std::max<std::int64_t>(rows, 1));
  range = std::max(range, ceil_div(s.v_piece * chunks, engine.worthwhile_ranges()));
  if (r.gradients.grad_w) range = std::max(range, engine.filling_rows(s.h_range));
  if (!s.keeps_logits) range = std::max(range, engine.filling_rows(rows));
  return round_up(std::max(range, unit), unit);
}

/// What the products whose rows are a range's take over all ranges, in rounds of the machine's
/// work-groups over all of their columns.
double rounds_of_ranges(const Request& r, const engines::Engine& engine, const Schedule& s,
                        std::int64_t range, std::int64_t extent) {
  const auto rounds = [&](std::int64_t columns, std::int64_t n) {
    const std::int64_t strips = ceil_div(columns, engine.strip());
    const std::int64_t panels = std::max<std::int64_t>(1, ceil_div(n, engine.tile_n()));
    const std::int64_t across = ceil_div(panels, engine.panels_per_group(strips, panels));
    return static_cast<double>(engines::rounds_of(strips * across, engine.slots())) /
           static_cast<double>(across);
  };
  const auto of_range = [&](std::int64_t columns) {
    return (r.gradients.grad_w ? rounds(columns, s.h_range) : 0.0) +
           (s.keeps_logits ? 0.0 : rounds(columns, s.chunk_rows));
  };
  return static_cast<double>(extent / range) * of_range(range) + of_range(extent % range);
}

/// `even`, or what down to half of it leaves fewer work-groups to wait for.
std::int64_t fuller_range(const Request& r, const engines::Engine& engine, const Schedule& s,
                          std::int64_t unit, std::int64_t even, std::int64_t extent) {
  if (even >= extent) return even;  // one range: a second one's launches are not worth it
  // Tiles that are filtered begin where ranges do.
  const std::int64_t tile = filters_gradients(r) ? filter_columns : 1;
  const std::int64_t step = std::lcm(std::lcm(unit, tile), engine.strip());
  const auto cost = [&](std::int64_t range) {
    return rounds_of_ranges(r, engine, s, range, extent);
  };
  // Where rounds are many, no range saves as much as `cheapest` asks for: there is nothing to try.
  const double products = (r.gradients.grad_w ? 1.0 : 0.0) + (s.keeps_logits ? 0.0 : 1.0);
  const double without_waiting =
      products * static_cast<double>(extent) / static_cast<double>(engine.strip() * engine.slots());
  if (engines::worth_changing * cost(even) <= without_waiting) return even;
  const auto is_left = [&](std::int64_t range) { return 2 * range > even && range > 0; };
  return engines::cheapest(even, even / step * step, -step, is_left, cost);
}

/// What a choice of chunk and range leads to.
void complete(const Request& request, const engines::Engine& engine, Schedule& s) {
  s.chunks = std::max<std::int64_t>(1, ceil_div(s.rows, s.chunk_rows));
  s.gradient_rows = s.chunk_rows;
  if (s.logits_in_grad_w && !s.v_outer) s.gradient_rows = all_rows(engine, s);
  if (s.keeps_logits) {
    const std::int64_t unit = range_unit(request, engine, s);
    const std::int64_t most = best_range(request, engine, s, unit, s.gradient_rows);
    const std::int64_t columns = std::max<std::int64_t>(s.v_piece, 1);
    if (s.v_range > most) s.v_range = fuller_range(request, engine, s, unit, most, columns);
  }
  s.v_range = std::clamp<std::int64_t>(s.v_range, 1, std::max<std::int64_t>(s.v_piece, 1));
  if (s.grad_w == Schedule::GradW::range && s.chunks == 1) s.grad_w = Schedule::GradW::direct;
  if (request.gradients.grad_w) {
    s.streams_grad_w =
        s.grad_w == Schedule::GradW::direct && s.chunks == 1 &&
        engine.streams(request.loss.v * hidden(request) *
                       static_cast<std::int64_t>(size_of(request.gradients.grad_w.dtype())));
  }
  // Slices end where a launch does: with a piece of w, or with a range that a teacher's logits
  // wait for.
  const std::int64_t v = std::max<std::int64_t>(request.loss.v, 1);
  const std::int64_t piece = std::max<std::int64_t>(s.v_piece, 1);
  const std::int64_t look = s.teacher.given ? s.looked_at() : piece;
  s.look_block = s.blocks.v_block_size;
  if (look < piece) s.look_block = std::min(s.look_block, even_block(engine, look, s.shrink));
  s.slices = std::max<std::int64_t>(1, ceil_div(look, s.look_block)) * ceil_div(piece, look) *
             ceil_div(v, piece);
  s.h_padded = engine.sums_rows(s.h_range);
  s.dz = stored_dz(request, engine, s);
  s.logits_cut = engine.cut(logits_product(request, s), s.shrink);
  if (s.teacher.is_layer) s.teacher_cut = engine.cut(teacher_product(s), s.shrink);
  s.grad_w_cut = engine.cut(grad_w_product(request, s), s.shrink);
  s.grad_x_cut = engine.cut(grad_x_product(request, s), s.shrink);
  s.x_parts = 1;
  if (request.gradients.grad_x && !filters_gradients(request)) {
    const std::int64_t parts = engine.parts(s.h_range, s.grad_x_cut, s.shrink);
    s.x_parts = engine.k_parts(
        engine.launch_groups(parts, ceil_div(s.gradient_rows, engine.tile_n()), s.shrink),
        s.v_range);
  }
  s.scratch_words =
      loss::loss_rows_words(request.loss, engine.tile_n()) + regions_of(request, engine, s).total();
}

bool fits(const Request& request, const engines::Engine& engine, Schedule& s,
          const Limits& limits) {
  complete(request, engine, s);
  const auto& knobs = request.execution.knobs;
  // What the caller gives is not for the search to change.
  for (const auto& [name, value] :
       {std::pair{"chunk_rows", s.chunk_rows}, {"v_range", s.v_range}}) {
    if (dispatch::value_of(knobs, name).value_or(value) != value) return false;
  }
  return s.scratch_words <= limits.words &&
         regions_of(request, engine, s).largest() <= limits.allocation;
}

/// The largest value of `field`, in steps of `unit` and not above `most` rounded up, with which the
/// schedule fits; 0: none. Words grow with it, but for a few, so bisection finds the edge.
std::int64_t largest_that_fits(const Request& request, const engines::Engine& engine,
                               const Schedule& s, const Limits& limits,
                               std::int64_t Schedule::*field, std::int64_t unit,
                               std::int64_t most) {
  const auto fit_so_many = [&](std::int64_t units) {
    Schedule trial = s;
    trial.*field = units * unit;
    return fits(request, engine, trial, limits);
  };
  std::int64_t low = 0;
  std::int64_t high = ceil_div(std::max<std::int64_t>(most, 1), unit);
  // All of it first: of a few strips more, whose groups divide them otherwise, words may be fewer.
  if (fit_so_many(high)) return high * unit;
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (fit_so_many(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low * unit;
}

/// Sets `field` to the largest value that fits, evened out over `extent`; false: none does.
bool fit(const Request& request, const engines::Engine& engine, Schedule& s, const Limits& limits,
         std::int64_t Schedule::*field, std::int64_t unit, std::int64_t most, std::int64_t extent) {
  const char* knob = field == &Schedule::v_range ? "v_range" : "chunk_rows";
  if (const auto given = dispatch::value_of(request.execution.knobs, knob)) {
    s.*field = *given;
    // All of it, which is reported as it is, or whole units.
    const bool legal = *given > 0 && (*given % unit == 0 || *given == extent);
    return legal && fits(request, engine, s, limits);
  }
  const std::int64_t largest = largest_that_fits(request, engine, s, limits, field, unit, most);
  if (largest == 0) return false;
  const std::int64_t parts = std::max<std::int64_t>(1, ceil_div(extent, largest));
  s.*field = round_up(std::max<std::int64_t>(ceil_div(extent, parts), 1), unit);
  if (field == &Schedule::v_range) {
    s.v_range = fuller_range(request, engine, s, unit, s.v_range, extent);
  }
  if (fits(request, engine, s, limits)) return true;
  s.*field = largest;  // does, though a few less do not
  return fits(request, engine, s, limits);
}

bool fit_chunk(const Request& request, const engines::Engine& engine, Schedule& s,
               const Limits& limits, std::int64_t most) {
  return fit(request, engine, s, limits, &Schedule::chunk_rows, engine.tile_n(), most, s.rows);
}

bool fit_range(const Request& request, const engines::Engine& engine, Schedule& s,
               const Limits& limits, std::int64_t most) {
  return fit(request, engine, s, limits, &Schedule::v_range, range_unit(request, engine, s), most,
             s.v_piece);
}

/// Logits stored in grad_w, gradients of all rows together, for parts of H one after the other:
/// from the end, so that those come last that lie where the logits are. What is repeated for each
/// part is dz alone. Rows that grad_w has no room for have their logits in scratch.
std::optional<Schedule> store_partly_in_grad_w(const Request& r, const engines::Engine& engine,
                                               const Schedule& base, const Limits& limits) {
  Schedule s = base;
  const std::int64_t tile = engine.tile_n();
  const std::int64_t all = all_rows(engine, s);
  const std::int64_t within = std::min(all, s.tokens_in_grad_w);
  s.rows_beyond = all - within;
  s.keeps_logits = s.logits_in_grad_w = true;
  const auto size = static_cast<std::int64_t>(size_of(r.gradients.grad_w.dtype()));
  // Of the H elements of a column.
  const std::int64_t occupied = within * (s.teacher.given ? 2 : 1) * 4 / size;
  const std::int64_t cached = best_range(r, engine, s, range_unit(r, engine, s), all);
  const std::int64_t columns = std::min(std::max<std::int64_t>(s.v_piece, 1), cached);
  for (std::int64_t parts = 1; parts == 1 || ceil_div(hidden(r), parts) >= occupied; parts *= 2) {
    s.h_range =
        parts == 1 ? hidden(r) : std::min(hidden(r), round_up(ceil_div(hidden(r), parts), tile));
    s.name = within < all
                 ? "one_chunk_partly_in_grad_w"  // which leaves no part of H without logits
             : parts == 1 ? "one_chunk_in_grad_w"
                          : "h_outer_in_grad_w";
    // Forward takes rows in chunks, which need as much memory as gradients of a part, or more.
    for (std::int64_t chunks = 1; chunks <= parts; chunks *= 2) {
      s.chunk_rows = round_up(ceil_div(all, chunks), tile);
      Schedule trial = s;
      if (fit_range(r, engine, trial, limits, columns) &&
          trial.v_range >= std::min(columns, fewest_columns)) {
        return trial;
      }
    }
  }
  return std::nullopt;
}

/// The same of value_and_grad with ranges of the vocabulary outside, chunks of rows inside.
std::optional<Schedule> store_in_grad_w_by_range(const Request& r, const engines::Engine& engine,
                                                 const Schedule& base, const Limits& limits) {
  Schedule s = base;
  const std::int64_t tile = engine.tile_n();
  const std::int64_t all = all_rows(engine, s);
  s.keeps_logits = s.logits_in_grad_w = s.v_outer = true;
  s.grad_w = Schedule::GradW::range;
  s.name = "v_outer_in_grad_w";
  const std::int64_t v = std::max<std::int64_t>(s.v_piece, 1);
  const std::int64_t least = std::min(all, round_up(64, tile));
  for (s.chunk_rows = all; s.chunk_rows >= least; s.chunk_rows = s.chunk_rows / 2 / tile * tile) {
    Schedule trial = s;
    const std::int64_t most =
        std::min(v, best_range(r, engine, s, range_unit(r, engine, s), s.chunk_rows));
    if (!fit_range(r, engine, trial, limits, most)) continue;
    // x is packed again for every range and chunk: narrow ranges are worth it only at the end.
    if (trial.v_range >= std::min(most, fewest_columns) || s.chunk_rows / 2 < least) return trial;
  }
  return std::nullopt;
}

/// All logits of value_and_grad in scratch.
std::optional<Schedule> store_in_scratch(const Request& r, const engines::Engine& engine,
                                         const Schedule& base, const Limits& limits) {
  Schedule s = base;
  s.keeps_logits = true;
  s.v_range = std::max<std::int64_t>(base.v_piece, 1);
  s.name = "one_chunk";
  s.chunk_rows = all_rows(engine, base);
  if (fits(r, engine, s, limits)) return s;
  return std::nullopt;
}

/// Fewer rows than this a chunk, and reading all of w twice for each costs more than recomputing.
std::int64_t worthwhile_rows(const engines::Engine& engine, const Schedule& s) {
  return std::min<std::int64_t>(all_rows(engine, s), round_up(64, engine.tile_n()));
}

/// Those of as many rows at a time as fit: of enough, where a chunk has to be worthwhile.
template <bool worthwhile>
std::optional<Schedule> store_chunks(const Request& r, const engines::Engine& engine,
                                     const Schedule& base, const Limits& limits) {
  const bool in_place = sums_in_place(r.gradients.grad_w);
  Schedule s = base;
  s.keeps_logits = true;
  s.v_range = std::max<std::int64_t>(base.v_piece, 1);
  s.name = in_place ? "chunked" : "chunked_f32_grad_w";
  s.grad_w = in_place ? Schedule::GradW::direct : Schedule::GradW::full;
  const bool found = fit_chunk(r, engine, s, limits, all_rows(engine, base)) &&
                     (!worthwhile || s.chunk_rows >= worthwhile_rows(engine, base));
  return found ? std::optional(s) : std::nullopt;
}

/// Logits that do not wait, formed for a range at a time: from `most_rows` rows on fewer, until a
/// wide enough range fits.
std::optional<Schedule> fit_rows_and_range(const Request& r, const engines::Engine& engine,
                                           const Schedule& base, const Limits& limits,
                                           std::int64_t most_rows) {
  const std::int64_t tile = engine.tile_n();
  const std::int64_t v = std::max<std::int64_t>(base.v_piece, 1);
  for (std::int64_t rows = most_rows; rows >= tile; rows = rows / 2 / tile * tile) {
    Schedule trial = base;
    trial.chunk_rows = rows;
    const std::int64_t cached = best_range(r, engine, base, engine.rule().m_multiple, rows);
    if (!fit_range(r, engine, trial, limits, std::min(v, cached))) continue;
    // A narrow range starts launches, and packs x, too often; a smaller chunk may allow a wider
    // one.
    if (trial.v_range >= std::min<std::int64_t>(v, 64) || rows == tile) return trial;
  }
  return std::nullopt;
}

/// Values of a call with a teacher: all logits of a chunk of rows where they are looked at twice,
/// else those of a range at a time, of as many rows as leave room for a range.
std::optional<Schedule> fit_looks(const Request& r, const engines::Engine& engine, Schedule s,
                                  const Limits& limits) {
  const std::int64_t tile = engine.tile_n();
  const std::int64_t v = std::max<std::int64_t>(s.v_piece, 1);
  const std::int64_t all = all_rows(engine, s);
  if (s.teacher.looks_twice) {
    Schedule kept = s;
    kept.keeps_logits = true;
    kept.v_range = v;
    kept.name = "chunked";
    if (fit_chunk(r, engine, kept, limits, all) && kept.chunk_rows >= worthwhile_rows(engine, s)) {
      if (kept.chunks == 1) kept.name = "one_chunk";
      return kept;
    }
  }
  const auto given = dispatch::value_of(r.execution.knobs, "chunk_rows");
  if (given && *given % tile != 0) return std::nullopt;
  const std::int64_t block = round_up(std::max(s.blocks.b_block_size, tile), tile);
  return fit_rows_and_range(r, engine, s, limits, given.value_or(std::min(all, block)));
}

std::optional<Schedule> stream(const Request& r, const engines::Engine& engine,
                               const Schedule& base, const Limits& limits) {
  Schedule s = base;
  s.name = "streamed";
  if (s.teacher.given) return fit_looks(r, engine, s, limits);
  s.v_range = std::max<std::int64_t>(base.v_piece, 1);
  const std::int64_t block = std::max(base.blocks.b_block_size, engine.tile_n());
  if (fit_chunk(r, engine, s, limits, std::min(all_rows(engine, base), block))) return s;
  return std::nullopt;
}

/// Logits that are formed again, with rows outside or the vocabulary. A device that waits for
/// launches takes all rows at once, where the caller says nothing else.
template <bool v_outer>
std::optional<Schedule> recompute(const Request& r, const engines::Engine& engine,
                                  const Schedule& base, const Limits& limits) {
  Schedule s = base;
  const std::int64_t all = all_rows(engine, s), tile = engine.tile_n();
  s.v_outer = v_outer;
  s.grad_w = v_outer ? Schedule::GradW::range : Schedule::GradW::direct;
  const bool waits =
      engine.worthwhile_ranges() < engines::all_of_k && s.source != BlockSource::caller;
  const std::int64_t block = round_up(std::max(s.blocks.b_block_size, tile), tile);
  auto found = fit_rows_and_range(r, engine, s, limits, waits ? all : std::min(all, block));
  if (found) found->name = v_outer ? "v_outer" : found->chunk_rows >= all ? "one_chunk" : "chunked";
  return found;
}

constexpr Way forward_ways[] = {{"streamed", "not kept", nullptr, stream}};

constexpr Way gradient_ways[] = {
    {"one_chunk_in_grad_w", "in grad_w", why_not_in_grad_w, store_partly_in_grad_w},
    {"v_outer_in_grad_w", "in grad_w", why_not_by_range, store_in_grad_w_by_range},
    {"one_chunk", "in scratch", why_not_kept, store_in_scratch},
    {"one_chunk_partly_in_grad_w", "in grad_w and scratch", why_not_partly, store_partly_in_grad_w},
    {"chunked", "in scratch, chunks worth reading w twice for", why_not_kept, store_chunks<true>},
    {"chunked", "formed again", why_not_rows_outer, recompute<false>},
    {"v_outer", "formed again", nullptr, recompute<true>},
    {"chunked", "in scratch, chunks of any size", why_not_kept, store_chunks<false>}};

/// The first of the ways that fits with the largest tiles: smaller ones are slower, but less so
/// than another group of ways.
std::optional<Schedule> first_of(std::span<const Way> ways, const Request& r,
                                 const engines::Engine& engine, Schedule s, const Limits& limits,
                                 std::int64_t most_shrink) {
  for (s.shrink = 1;; s.shrink *= 4) {
    for (const Way& way : ways) {
      if (way.why_not != nullptr && way.why_not(r, engine, s) != nullptr) continue;
      if (auto found = way.make(r, engine, s, limits)) return found;
    }
    if (s.shrink >= most_shrink) return std::nullopt;
  }
}

std::optional<Schedule> choose_in_slices(const Request& r, const engines::Engine& engine,
                                         const Schedule& base, const Limits& limits,
                                         std::int64_t most_shrink) {
  const auto ways = ways_of(r);
  if (!has_gradients(r.loss.pass)) return first_of(ways, r, engine, base, limits, most_shrink);
  // Chunks of rows cost little more than one, where their gradients of w can be summed.
  const auto alone = ways.subspan(2, sums_in_place(r.gradients.grad_w) ? 0 : 2);
  for (const auto& group : {ways.first(1), ways.subspan(1, 1), alone, ways.subspan(2)}) {
    if (auto found = first_of(group, r, engine, base, limits, most_shrink)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::span<const Way> ways_of(const Request& r) {
  if (has_gradients(r.loss.pass)) return gradient_ways;
  return forward_ways;
}

std::optional<Schedule> choose(const Request& r, const engines::Engine& engine,
                               const Schedule& base, const Limits& limits, Cores cores) {
  if (cores == Cores::busy) {
    return choose_in_slices(r, engine, base, limits, engine.shrink_of_tiles());
  }
  const std::int64_t most = engine.most_shrink();
  if (auto found = choose_in_slices(r, engine, base, limits, most)) return found;
  // Each slice has statistics of every row; the caller's slices are left as they are.
  Schedule s = base;
  if (s.source == BlockSource::caller) return std::nullopt;
  const std::int64_t longest =
      round_up(std::max<std::int64_t>(r.loss.v, 1), engine.rule().m_multiple);
  while (s.blocks.v_block_size < longest) {
    s.blocks.v_block_size = std::min(longest, 4 * s.blocks.v_block_size);
    if (auto found = choose_in_slices(r, engine, s, limits, most)) return found;
  }
  return std::nullopt;
}

}  // namespace tessera::linear
