// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "host/linear/opencl/problem.hpp"

// The ways to nest the loops of a call, best first, and why one is none however much memory there
// is.
namespace tessera::linear {

using engines::ceil_div;
using engines::round_up;
using schedule::fewest_columns;
using schedule::Order;
using schedule::Results;
using schedule::Search;
using schedule::Sums;
using schedule::Way;

std::int64_t Problem::range_unit(const Schedule& s) const {
  const bool in_grad_w = s.results == Results::output;
  return std::lcm(in_grad_w ? kept_columns(r_.gradients.grad_w, engine()) : 1,
                  engine().rule().m_multiple);
}

void Problem::settle(Schedule& s) const {
  if (s.sums == Sums::range && s.chunks() == 1) s.sums = Sums::direct;
}

/// Tokens whose logits fit where grad_w will be: H elements a column, f32 logits of every token.
/// Such memory costs nothing, is as large as the logits of H tokens, and is written over only when
/// they have been used.
std::int64_t Problem::room_in_grad_w() const {
  const auto& out = r_.gradients.grad_w;
  if (!out) return 0;
  const std::int64_t tile = engine().tile_n();
  const std::int64_t tokens =
      hidden(r_) * static_cast<std::int64_t>(size_of(out.dtype())) / 4 / tile * tile;
  return tokens / layers() / tile * tile;
}

bool sums_in_place(const MutableView& grad_w) { return !grad_w || grad_w.dtype() == DType::f32; }

/// The columns of grad_w (or its rows, as [H, V], in whole blocks of columns) must lie apart, be
/// readable, and hold nothing that the call still needs.
const char* Problem::why_no_logits_in_grad_w(const opencl::DeviceFacts& facts) const {
  const auto& out = r_.gradients.grad_w;
  if (!out) return "grad_w is not asked for";
  if (r_.gradients.accumulate.has(Accumulate::grad_w)) return "grad_w is added to";
  if (!facts.zero_copy) return "the device does not work on host memory";
  if (base.piece < r_.loss.v) return "the device's largest allocation does not hold w or grad_w";
  const int layout = layout_of(out);
  if (layout == layout_strided || hidden(r_) < 2) return "grad_w has no contiguous axis";
  const bool by_columns = layout == layout_vh;
  const std::int64_t apart = out.strides()[by_columns ? 1 : 0];
  if (apart < (by_columns ? hidden(r_) : r_.loss.v)) return "rows of grad_w overlap";
  if (!kernels_can_read(out)) return "kernels cannot read grad_w";
  if (r_.loss.v % kept_columns(out, engine()) != 0) return "V is no multiple of grad_w's blocks";
  return room_in_grad_w() > 0 ? nullptr : "a column of grad_w has no room for a tile of tokens";
}

const char* Problem::why_not_kept() const {
  return looks() > 0 ? nullptr : "no pass over all logits comes before the gradients";
}

const char* Problem::why_not_in_grad_w() const {
  if (no_logits_in_grad_w_ != nullptr) return no_logits_in_grad_w_;
  return all_rows(base) <= room_in_grad_w()
             ? nullptr
             : "grad_w has no room for the logits of all rows that count";
}

const char* Problem::why_not_by_range() const {
  const char* reason = why_not_kept();
  return reason != nullptr ? reason : why_not_in_grad_w();
}

const char* Problem::why_not_partly() const {
  if (const char* reason = why_not_kept()) return reason;
  if (no_logits_in_grad_w_ != nullptr) return no_logits_in_grad_w_;
  if (all_rows(base) <= room_in_grad_w()) return "grad_w has room for all logits";
  return why_whole_rows();
}

const char* Problem::why_not_rows_outer() const {
  // A row-outer order would need a second pass anyway.
  if (looks() > 0) return "values come first for all rows";
  return sums_in_place(r_.gradients.grad_w) ? nullptr : "chunks cannot add to a grad_w of 16 bits";
}

/// The schedules of each way.
struct Ways {
  struct Row;
  static const Row table[7];

  const Problem& p;
  const Search& search;
  const Schedule& base;
  std::int64_t all = p.all_rows(base);
  std::int64_t tile = p.engine().tile_n();

  /// Logits stored in grad_w, gradients of all rows together, for parts of H one after the other:
  /// from the end, so that those come last that lie where the logits are. Each part repeats dz
  /// alone. Rows that grad_w has no room for have their logits in scratch.
  std::optional<Schedule> partly_in_grad_w() const {
    Schedule s = base;
    const std::int64_t h = s.all.depth, within = std::min(all, p.room_in_grad_w());
    s.order = Order::depth;
    s.results = Results::output;
    const auto size = static_cast<std::int64_t>(size_of(p.r_.gradients.grad_w.dtype()));
    // The logits take the place of so many of a column's H elements.
    const std::int64_t occupied = within * p.layers() * 4 / size;
    s.at.rows = all;
    const std::int64_t columns = std::min(s.piece, search.best_range(s, s.piece));
    for (std::int64_t parts = 1; parts == 1 || ceil_div(h, parts) >= occupied; parts *= 2) {
      s.at.depth = parts == 1 ? h : std::min(h, round_up(ceil_div(h, parts), tile));
      s.name = within < all
                   ? "one_chunk_partly_in_grad_w"  // which leaves no part of H without logits
               : parts == 1 ? "one_chunk_in_grad_w"
                            : "h_outer_in_grad_w";
      // Forward takes rows in chunks, which need as much memory as gradients of a part, or more.
      for (std::int64_t chunks = 1; chunks <= parts; chunks *= 2) {
        s.at.rows = round_up(ceil_div(all, chunks), tile);
        Schedule trial = s;
        if (search.fit_range(trial, columns) &&
            trial.at.columns >= std::min(columns, fewest_columns)) {
          return trial;
        }
      }
    }
    return std::nullopt;
  }

  /// The same of value_and_grad with ranges of the vocabulary outside, chunks of rows inside.
  std::optional<Schedule> in_grad_w_by_range() const {
    Schedule s = base;
    s.order = Order::columns;
    s.results = Results::output;
    s.sums = Sums::range;
    s.name = "v_outer_in_grad_w";
    const std::int64_t least = std::min(all, round_up(64, tile));
    for (s.at.rows = all; s.at.rows >= least; s.at.rows = s.at.rows / 2 / tile * tile) {
      Schedule trial = s;
      const std::int64_t most = std::min(s.piece, search.best_range(s, s.piece));
      if (!search.fit_range(trial, most)) continue;
      // x is packed again for every range and chunk: narrow ranges are worth it only at the end.
      if (trial.at.columns >= std::min(most, fewest_columns) || s.at.rows / 2 < least) {
        return trial;
      }
    }
    return std::nullopt;
  }

  /// All logits of value_and_grad in scratch.
  std::optional<Schedule> in_scratch() const {
    Schedule s = base;
    s.results = Results::scratch;
    s.at = {all, s.piece, s.all.depth};
    s.name = "one_chunk";
    if (search.fits(s)) return s;
    return std::nullopt;
  }

  /// All logits of as many rows at a time as fit.
  std::optional<Schedule> in_chunks() const {
    const bool in_place = sums_in_place(p.r_.gradients.grad_w);
    Schedule s = base;
    s.results = Results::scratch;
    s.at.columns = s.piece;
    s.name = in_place ? "chunked" : "chunked_f32_grad_w";
    s.sums = in_place ? Sums::direct : Sums::all;
    if (search.fit_rows(s, all)) return s;
    return std::nullopt;
  }

  /// Logits that do not wait, formed for a range at a time: from `most_rows` rows on fewer, until a
  /// wide enough range fits.
  std::optional<Schedule> rows_and_range(const Schedule& from, std::int64_t most_rows) const {
    for (std::int64_t rows = most_rows; rows >= tile; rows = rows / 2 / tile * tile) {
      Schedule trial = from;
      trial.at.rows = rows;
      if (!search.fit_range(trial, search.best_range(trial, trial.piece))) continue;
      // A narrow range starts launches, and packs x, too often; a smaller chunk may allow a wider
      // one.
      if (trial.at.columns >= std::min<std::int64_t>(trial.piece, 64) || rows == tile) {
        return trial;
      }
    }
    return std::nullopt;
  }

  /// Rows that forward takes at a time: the block, in whole tiles.
  std::int64_t block_rows() const {
    return std::min(all, round_up(std::max(base.blocks.n, tile), tile));
  }

  /// Values of a call with another layer: all logits of a chunk of rows where they are looked at
  /// twice, else those of a range at a time, of as many rows as leave room for a range.
  std::optional<Schedule> looks(const Schedule& from) const {
    std::optional<Schedule> kept;
    if (p.looks() > 1) {
      kept = from;
      kept->results = Results::scratch;
      kept->at.columns = from.piece;
      kept->name = "chunked";
      if (!search.fit_rows(*kept, all)) {
        kept.reset();
      } else if (kept->chunks() == 1) {
        kept->name = "one_chunk";
      }
    }
    const auto given = p.given("chunk_rows");
    if (given && *given % tile != 0) return kept;
    return search.better(std::move(kept), rows_and_range(from, given.value_or(block_rows())));
  }

  std::optional<Schedule> stream() const {
    Schedule s = base;
    s.name = "streamed";
    if (p.layers() > 1) return looks(s);
    s.at.columns = s.piece;
    if (search.fit_rows(s, std::min(all, std::max(base.blocks.n, tile)))) return s;
    return std::nullopt;
  }

  /// Logits that are formed again, with rows outside or the vocabulary: all rows at once, or those
  /// that forward takes at a time.
  template <Order order>
  std::optional<Schedule> formed_again() const {
    Schedule s = base;
    s.order = order;
    s.results = Results::formed_again;
    s.sums = order == Order::columns ? Sums::range : Sums::direct;
    const std::int64_t block = block_rows();
    auto found = rows_and_range(s, block);
    if (block < all && s.source != BlockSource::caller) {
      auto more = rows_and_range(s, all);
      // A launch of so few columns packs x again at a cost that is not counted.
      const bool narrow = more && more->at.columns < std::min(s.piece, fewest_columns);
      if (more && more->at.rows > block && !narrow) found = search.better(found, more);
    }
    if (found) {
      found->name = order == Order::columns ? "v_outer"
                    : found->at.rows >= all ? "one_chunk"
                                            : "chunked";
    }
    return found;
  }
};

namespace {

constexpr Way forward_ways[] = {{"streamed", "not kept"}};
constexpr Way gradient_ways[] = {{"one_chunk_in_grad_w", "in grad_w"},
                                 {"v_outer_in_grad_w", "in grad_w"},
                                 {"one_chunk", "in scratch"},
                                 {"one_chunk_partly_in_grad_w", "in grad_w and scratch"},
                                 {"chunked", "in scratch, a chunk at a time"},
                                 {"chunked", "formed again"},
                                 {"v_outer", "formed again"}};

}  // namespace

/// The reasons and schedules of gradient_ways, in that order.
struct Ways::Row {
  const char* (Problem::*why_not)() const;
  std::optional<Schedule> (Ways::*make)() const;
};
constexpr Ways::Row Ways::table[] = {
    {&Problem::why_not_in_grad_w, &Ways::partly_in_grad_w},
    {&Problem::why_not_by_range, &Ways::in_grad_w_by_range},
    {&Problem::why_not_kept, &Ways::in_scratch},
    {&Problem::why_not_partly, &Ways::partly_in_grad_w},
    {&Problem::why_not_kept, &Ways::in_chunks},
    {&Problem::why_not_rows_outer, &Ways::formed_again<Order::rows>},
    {nullptr, &Ways::formed_again<Order::columns>}};

std::span<const Way> Problem::ways() const {
  if (has_gradients(r_.loss.pass)) return gradient_ways;
  return forward_ways;
}

std::vector<std::pair<std::size_t, std::size_t>> Problem::groups() const {
  if (!has_gradients(r_.loss.pass)) return {{0, 1}};
  // Chunks of rows cost little more than one, where their gradients of w can be summed.
  if (sums_in_place(r_.gradients.grad_w)) return {{0, 1}, {1, 2}, {2, 7}};
  return {{0, 1}, {1, 2}, {2, 4}, {2, 7}};
}

const char* Problem::why_not(std::size_t way) const {
  const bool always = !has_gradients(r_.loss.pass) || Ways::table[way].why_not == nullptr;
  return always ? nullptr : (this->*Ways::table[way].why_not)();
}

std::optional<Schedule> Problem::make(std::size_t way, const Search& search,
                                      const Schedule& from) const {
  const Ways ways{*this, search, from};
  return has_gradients(r_.loss.pass) ? (ways.*Ways::table[way].make)() : ways.stream();
}

}  // namespace tessera::linear
