// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "host/dispatch/knobs.hpp"
#include "host/engines/shares.hpp"
#include "host/linear/opencl/cost.hpp"
#include "host/linear/opencl/plan.hpp"
#include "host/linear/opencl/reasons.hpp"
#include "host/loss/opencl_rows.hpp"

namespace tessera::linear {

using engines::ceil_div;
using engines::round_up;

namespace {

/// Another width of ranges has to save this much of a call: 2% of one of its three products.
constexpr double worth_a_range = 0.993;

/// Of which a range of the vocabulary is a multiple.
std::int64_t range_unit(const Request& request, const engines::Engine& engine, const Schedule& s) {
  const std::int64_t block =
      s.logits_in_grad_w ? kept_columns(request.gradients.grad_w, engine) : 1;
  return std::lcm(block, engine.rule().m_multiple);
}

/// What a choice of chunk and range leads to, but for its scratch.
void settle(const Request& request, const engines::Engine& engine, Schedule& s) {
  s.chunks = std::max<std::int64_t>(1, ceil_div(s.rows, s.chunk_rows));
  s.gradient_rows = s.chunk_rows;
  if (s.logits_in_grad_w && !s.v_outer) s.gradient_rows = all_rows(engine, s);
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
  if (look < piece) s.look_block = std::min(s.look_block, even_block(request, engine, s, look));
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
        s.grad_x_cut,
        engine.launch_groups(parts, ceil_div(s.gradient_rows, engine.tile_n()), s.shrink),
        s.v_range);
  }
}

/// What a schedule would cost with ranges of so many columns.
Cost cost_with(const Request& r, const engines::Engine& engine, Schedule s, std::int64_t range) {
  s.v_range = range;
  settle(r, engine, s);
  return cost_of(r, engine, s);
}

/// `extent` in as many parts as `part` makes of it, all about equal.
std::int64_t evened(std::int64_t extent, std::int64_t part, std::int64_t unit) {
  const std::int64_t parts = std::max<std::int64_t>(1, ceil_div(extent, part));
  return round_up(std::max<std::int64_t>(ceil_div(extent, parts), 1), unit);
}

/// `even`, or what down to half of it leaves so much fewer work-groups to wait for, or lines of
/// grad_w to share, that the call takes less time.
std::int64_t fuller_range(const Request& r, const engines::Engine& engine, const Schedule& s,
                          std::int64_t unit, std::int64_t even, std::int64_t extent) {
  if (even >= extent) return even;  // one range: a second one's launches are not worth it
  const Cost own = cost_with(r, engine, s, even);
  const double waiting = own.multiply * (1.0 - engines::machine_share(own.products));
  const double saved = waiting + own.shared;
  if (own.seconds() - saved >= worth_a_range * own.seconds()) return even;  // nothing to try
  // Tiles that are filtered begin where ranges do. A hundred widths are enough to choose from.
  const std::int64_t tile = filters_gradients(r) ? filter_columns : 1;
  std::int64_t step = std::lcm(std::lcm(unit, tile), engine.strip());
  step *= std::max<std::int64_t>(1, even / 2 / step / 100);
  const auto cost = [&](std::int64_t range) { return cost_with(r, engine, s, range).seconds(); };
  const auto is_left = [&](std::int64_t range) { return 2 * range > even && range > 0; };
  return engines::cheapest(even, even / step * step, -step, is_left, cost, worth_a_range);
}

/// Columns of a range, up to `most`: as many as have their dz found in the cache
/// (Engine::cached_words), or twice as many, and so on. Fewer take less scratch, so more have to be
/// worth it (Rates::worth_scratch).
std::int64_t best_range(const Request& r, const engines::Engine& engine, Schedule s,
                        std::int64_t most) {
  settle(r, engine, s);
  const std::int64_t unit = range_unit(r, engine, s);
  const std::int64_t rows = std::max<std::int64_t>(s.gradient_rows, 1);
  const std::int64_t columns = std::max<std::int64_t>(s.v_piece, 1);
  std::int64_t range = std::max(engine.cached_words() / rows / unit * unit, unit);
  most = round_up(most, unit);
  if (range >= most) return most;
  std::vector<std::pair<std::int64_t, double>> tried;
  for (;; range = std::min(2 * range, most)) {
    tried.emplace_back(range, cost_with(r, engine, s, evened(columns, range, unit)).seconds());
    if (range == most) break;
  }
  const double least = std::ranges::min(tried, {}, [](auto& of) { return of.second; }).second;
  const double worth = engine.rates(logits_product(r, s)).worth_scratch;
  return std::ranges::find_if(tried, [&](auto& of) { return worth * of.second <= least; })->first;
}

/// What a choice of chunk and range leads to. Logits that all wait in memory are treated in ranges
/// anyway.
void complete(const Request& request, const engines::Engine& engine, Schedule& s) {
  const bool given = dispatch::value_of(request.execution.knobs, "v_range").has_value();
  if (s.keeps_logits && !(s.logits_in_grad_w && given)) {
    const std::int64_t columns = std::max<std::int64_t>(s.v_piece, 1);
    const std::int64_t most = best_range(request, engine, s, std::min(s.v_range, columns));
    if (s.v_range > most) {
      s.v_range = fuller_range(request, engine, s, range_unit(request, engine, s), most, columns);
    }
  }
  settle(request, engine, s);
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
  std::int64_t largest = largest_that_fits(request, engine, s, limits, field, unit, most);
  if (largest == 0) return false;
  if (field == &Schedule::v_range && has_gradients(request.loss.pass)) {
    if (largest < most) largest = best_range(request, engine, s, largest);
    s.v_range = fuller_range(request, engine, s, unit, evened(extent, largest, unit), extent);
  } else {
    s.*field = evened(extent, largest, unit);
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
  s.chunk_rows = all;
  const std::int64_t v = std::max<std::int64_t>(s.v_piece, 1);
  const std::int64_t columns = std::min(v, best_range(r, engine, s, v));
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
    const std::int64_t most = std::min(v, best_range(r, engine, s, v));
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

/// Those of as many rows at a time as fit.
std::optional<Schedule> store_chunks(const Request& r, const engines::Engine& engine,
                                     const Schedule& base, const Limits& limits) {
  const bool in_place = sums_in_place(r.gradients.grad_w);
  Schedule s = base;
  s.keeps_logits = true;
  s.v_range = std::max<std::int64_t>(base.v_piece, 1);
  s.name = in_place ? "chunked" : "chunked_f32_grad_w";
  s.grad_w = in_place ? Schedule::GradW::direct : Schedule::GradW::full;
  if (fit_chunk(r, engine, s, limits, all_rows(engine, base))) return s;
  return std::nullopt;
}

/// The first, or the second where that takes less time.
std::optional<Schedule> better(const Request& r, const engines::Engine& engine,
                               std::optional<Schedule> first, std::optional<Schedule> second) {
  if (!first || !second) return first ? first : second;
  const auto seconds = [&](const Schedule& s) { return cost_of(r, engine, s).seconds(); };
  return seconds(*second) < engines::worth_changing * seconds(*first) ? second : first;
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
    if (!fit_range(r, engine, trial, limits, best_range(r, engine, trial, v))) continue;
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
  std::optional<Schedule> kept;
  if (s.teacher.looks_twice) {
    kept = s;
    kept->keeps_logits = true;
    kept->v_range = v;
    kept->name = "chunked";
    if (!fit_chunk(r, engine, *kept, limits, all)) {
      kept.reset();
    } else if (kept->chunks == 1) {
      kept->name = "one_chunk";
    }
  }
  const auto given = dispatch::value_of(r.execution.knobs, "chunk_rows");
  if (given && *given % tile != 0) return kept;
  const std::int64_t block = round_up(std::max(s.blocks.b_block_size, tile), tile);
  return better(r, engine, std::move(kept),
                fit_rows_and_range(r, engine, s, limits, given.value_or(std::min(all, block))));
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

/// Logits that are formed again, with rows outside or the vocabulary: all rows at once, or what
/// forward takes at a time.
template <bool v_outer>
std::optional<Schedule> recompute(const Request& r, const engines::Engine& engine,
                                  const Schedule& base, const Limits& limits) {
  Schedule s = base;
  const std::int64_t all = all_rows(engine, s), tile = engine.tile_n();
  s.v_outer = v_outer;
  s.grad_w = v_outer ? Schedule::GradW::range : Schedule::GradW::direct;
  const std::int64_t block = std::min(all, round_up(std::max(s.blocks.b_block_size, tile), tile));
  auto found = fit_rows_and_range(r, engine, s, limits, block);
  if (block < all && s.source != BlockSource::caller) {
    auto more = fit_rows_and_range(r, engine, s, limits, all);
    // Of so few columns what each launch packs again costs more than is counted.
    const bool narrow = more && more->v_range < std::min(s.v_piece, fewest_columns);
    if (more && more->chunk_rows > block && !narrow) found = better(r, engine, found, more);
  }
  if (found) found->name = v_outer ? "v_outer" : found->chunk_rows >= all ? "one_chunk" : "chunked";
  return found;
}

constexpr Way forward_ways[] = {{"streamed", "not kept", nullptr, stream}};

constexpr Way gradient_ways[] = {
    {"one_chunk_in_grad_w", "in grad_w", why_not_in_grad_w, store_partly_in_grad_w},
    {"v_outer_in_grad_w", "in grad_w", why_not_by_range, store_in_grad_w_by_range},
    {"one_chunk", "in scratch", why_not_kept, store_in_scratch},
    {"one_chunk_partly_in_grad_w", "in grad_w and scratch", why_not_partly, store_partly_in_grad_w},
    {"chunked", "in scratch, a chunk at a time", why_not_kept, store_chunks},
    {"chunked", "formed again", why_not_rows_outer, recompute<false>},
    {"v_outer", "formed again", nullptr, recompute<true>}};

/// The best of the ways that fit with the largest tiles: smaller ones are slower, but less so than
/// another group of ways.
std::optional<Schedule> best_of(std::span<const Way> ways, const Request& r,
                                const engines::Engine& engine, Schedule s, const Limits& limits,
                                std::int64_t most_shrink) {
  for (s.shrink = 1;; s.shrink *= 4) {
    std::optional<Schedule> best;
    for (const Way& way : ways) {
      if (way.why_not != nullptr && way.why_not(r, engine, s) != nullptr) continue;
      best = better(r, engine, std::move(best), way.make(r, engine, s, limits));
    }
    if (best || s.shrink >= most_shrink) return best;
  }
}

std::optional<Schedule> choose_in_slices(const Request& r, const engines::Engine& engine,
                                         const Schedule& base, const Limits& limits,
                                         std::int64_t most_shrink) {
  const auto ways = ways_of(r);
  if (!has_gradients(r.loss.pass)) return best_of(ways, r, engine, base, limits, most_shrink);
  // Chunks of rows cost little more than one, where their gradients of w can be summed.
  const auto alone = ways.subspan(2, sums_in_place(r.gradients.grad_w) ? 0 : 2);
  for (const auto& group : {ways.first(1), ways.subspan(1, 1), alone, ways.subspan(2)}) {
    if (auto found = best_of(group, r, engine, base, limits, most_shrink)) return found;
  }
  return std::nullopt;
}

}  // namespace

bool is_narrow(const Request& r, const engines::Engine& engine, const Schedule& s) {
  const std::int64_t columns = std::max<std::int64_t>(s.v_piece, 1);
  if (s.v_range < std::min(columns, fewest_columns)) return true;
  // The caller's rows, so that what another call reported is what this one does.
  const std::int64_t asked = s.source == BlockSource::caller ? s.blocks.b_block_size : 0;
  if (s.chunk_rows < std::min(all_rows(engine, s), asked)) return true;
  const std::int64_t wide =
      evened(columns, best_range(r, engine, s, columns), range_unit(r, engine, s));
  constexpr double worth_memory = 0.95;
  return wide > s.v_range &&
         cost_with(r, engine, s, wide).seconds() < worth_memory * cost_of(r, engine, s).seconds();
}

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
