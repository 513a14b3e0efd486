// SPDX-License-Identifier: Apache-2.0
#include "host/schedule/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "host/dispatch/knobs.hpp"
#include "host/engines/shares.hpp"

namespace tessera::schedule {

using engines::ceil_div;
using engines::round_up;

namespace {

/// Another width of ranges has to save this much of a call: 2% of one of its three products.
constexpr double worth_a_range = 0.993;

/// `extent` in as many parts as `part` makes of it, all about equal.
std::int64_t evened(std::int64_t extent, std::int64_t part, std::int64_t unit) {
  const std::int64_t parts = std::max<std::int64_t>(1, ceil_div(extent, part));
  return round_up(std::max<std::int64_t>(ceil_div(extent, parts), 1), unit);
}

}  // namespace

std::optional<std::int64_t> Problem::given(const char* knob) const {
  return dispatch::value_of(knobs, knob);
}

std::int64_t Problem::all_rows(const Schedule& s) const {
  return round_up(std::max<std::int64_t>(s.all.rows, 1), engine_->tile_n());
}

void Search::settle(Schedule& s) const {
  s.at.columns = std::clamp<std::int64_t>(s.at.columns, 1, s.piece);
  p_.settle(s);
}

Cost Search::cost(const Schedule& s) const {
  Steps steps = p_.steps(s);
  Cost cost = cost_of(steps, s.shrink, p_.engine());
  p_.spare_ = std::move(steps.list);
  return cost;
}

/// The answer to a question about a schedule, and whether it is to be found yet.
std::pair<Problem::Known&, bool> Search::known(Problem::Asked asked, const Schedule& s,
                                               std::int64_t range) const {
  const auto [known, is_new] = p_.known_.try_emplace(
      {static_cast<std::int64_t>(asked), static_cast<std::int64_t>(s.order),
       static_cast<std::int64_t>(s.results), static_cast<std::int64_t>(s.sums), s.at.rows, range,
       s.at.depth, s.shrink, s.blocks.m});
  return {known->second, is_new};
}

const Problem::Known& Search::predicted(const Schedule& s) const {
  auto [known, is_new] = this->known(Problem::Asked::time, s, s.at.columns);
  if (is_new) {
    const Cost own = cost(s);
    const double waiting = own.multiply * (1.0 - engines::machine_share(own.products));
    known.seconds = own.seconds();
    known.lost = waiting + own.shared;
  }
  return known;
}

const Problem::Known& Search::predicted_with(Schedule s, std::int64_t range) const {
  s.at.columns = range;
  settle(s);
  return predicted(s);
}

std::int64_t Search::evened_range(const Schedule& s, std::int64_t range) const {
  return evened(s.piece, range, p_.range_unit(s));
}

/// `even`, or a width down to half of it that leaves so much fewer work-groups to wait for, or
/// lines of an output to share, that the call takes less time.
std::int64_t Search::fuller_range(const Schedule& s, std::int64_t even) const {
  if (even >= s.piece) return even;  // one range: a second one's launches are not worth it
  auto [known, is_new] = this->known(Problem::Asked::fuller, s, even);
  if (!is_new) return known.range;
  known.range = even;
  const auto& own = predicted_with(s, even);
  if (own.seconds - own.lost >= worth_a_range * own.seconds) return even;  // nothing to try
  // A hundred widths are enough to choose from.
  std::int64_t step = std::lcm(std::lcm(p_.range_unit(s), p_.range_step()), p_.engine().strip());
  step *= std::max<std::int64_t>(1, even / 2 / step / 100);
  const auto cost = [&](std::int64_t range) { return predicted_with(s, range).seconds; };
  const auto is_left = [&](std::int64_t range) { return 2 * range > even && range > 0; };
  return known.range =
             engines::cheapest(even, even / step * step, -step, is_left, cost, worth_a_range);
}

std::int64_t Search::best_range(const Schedule& s, std::int64_t most) const {
  const std::int64_t unit = p_.range_unit(s);
  const std::int64_t rows = std::max<std::int64_t>(p_.held_rows(s), 1);
  std::int64_t range = std::max(p_.engine().cached_words() / rows / unit * unit, unit);
  most = round_up(most, unit);
  if (range >= most) return most;
  auto [known, is_new] = this->known(Problem::Asked::best, s, most);
  if (!is_new) return known.range;
  std::vector<std::pair<std::int64_t, double>> tried;
  for (;; range = std::min(2 * range, most)) {
    tried.emplace_back(range, predicted_with(s, evened_range(s, range)).seconds);
    if (range == most) break;
  }
  const double least = std::ranges::min(tried, {}, [](auto& of) { return of.second; }).second;
  const double worth = p_.rates().worth_scratch;
  return known.range = std::ranges::find_if(tried, [&](auto& of) {
                         return worth * of.second <= least;
                       })->first;
}

/// The rest of a schedule. Results that all wait in memory are treated in ranges anyway.
void Search::complete(Schedule& s) const {
  const bool is_given = p_.given(p_.range_knob).has_value();
  if (s.keeps_results() && !(s.results == Results::output && is_given)) {
    const std::int64_t most = best_range(s, std::min(s.at.columns, s.piece));
    if (s.at.columns > most) s.at.columns = fuller_range(s, most);
  }
  settle(s);
}

bool Search::fits(Schedule& s) const {
  complete(s);
  Steps steps = p_.steps(s);
  const Arena arena(steps, s.shrink, p_.engine());
  p_.spare_ = std::move(steps.list);
  s.scratch_words = p_.other_words() + arena.total();
  // The search does not change what the caller gives.
  return p_.given("chunk_rows").value_or(s.at.rows) == s.at.rows &&
         p_.given(p_.range_knob).value_or(s.at.columns) == s.at.columns &&
         s.scratch_words <= limits_.words && arena.largest() <= limits_.allocation;
}

/// The largest value of `field`, in steps of `unit` and not above `most` rounded up, with which the
/// schedule fits; 0: none. Words grow with it, but for a few, so bisection finds the edge.
std::int64_t Search::largest_that_fits(const Schedule& s, std::int64_t Extents::*field,
                                       std::int64_t unit, std::int64_t most) const {
  const auto fit_so_many = [&](std::int64_t units) {
    Schedule trial = s;
    trial.at.*field = units * unit;
    return fits(trial);
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

/// Takes the caller's value: all of an extent, which is reported as it is, or whole units.
bool Search::is_as_given(Schedule& s, std::int64_t Extents::*field, std::int64_t value,
                         std::int64_t unit, std::int64_t extent) const {
  s.at.*field = value;
  return value > 0 && (value % unit == 0 || value == extent) && fits(s);
}

bool Search::fit_rows(Schedule& s, std::int64_t most) const {
  const std::int64_t unit = p_.engine().tile_n(), all = s.all.rows;
  if (const auto given = p_.given("chunk_rows")) {
    return is_as_given(s, &Extents::rows, *given, unit, all);
  }
  const std::int64_t largest = largest_that_fits(s, &Extents::rows, unit, most);
  if (largest == 0) return false;
  s.at.rows = evened(all, largest, unit);
  if (fits(s)) return true;
  s.at.rows = largest;  // does, though a few less do not
  return fits(s);
}

bool Search::fit_range(Schedule& s, std::int64_t most) const {
  const std::int64_t unit = p_.range_unit(s);
  if (const auto given = p_.given(p_.range_knob)) {
    return is_as_given(s, &Extents::columns, *given, unit, s.piece);
  }
  std::int64_t largest = largest_that_fits(s, &Extents::columns, unit, most);
  if (largest == 0) return false;
  if (p_.has_ranges && largest < most) largest = best_range(s, largest);
  s.at.columns = evened(s.piece, largest, unit);
  if (p_.has_ranges) s.at.columns = fuller_range(s, s.at.columns);
  if (fits(s)) return true;
  s.at.columns = largest;
  return fits(s);
}

std::optional<Schedule> Search::better(std::optional<Schedule> first,
                                       std::optional<Schedule> second) const {
  if (!first || !second) return first ? first : second;
  const double changing = engines::worth_changing * predicted(*first).seconds;
  return predicted(*second).seconds < changing ? second : first;
}

bool Search::is_narrow(const Schedule& s) const {
  const std::int64_t columns = s.piece;
  if (s.at.columns < std::min(columns, fewest_columns)) return true;
  // The caller's rows, so that what another call reported is what this one does.
  const std::int64_t asked = s.source == BlockSource::caller ? s.blocks.n : 0;
  if (s.at.rows < std::min(p_.all_rows(s), asked)) return true;
  const std::int64_t wide = evened_range(s, best_range(s, columns));
  constexpr double worth_memory = 0.95;
  return wide > s.at.columns &&
         predicted_with(s, wide).seconds < worth_memory * predicted(s).seconds;
}

/// The best of the ways that fit with the largest tiles: smaller ones are slower, but less so than
/// another group of ways.
std::optional<Schedule> Search::choose_in_slices(Schedule s, std::int64_t most_shrink) const {
  for (const auto& [begin, end] : p_.groups()) {
    for (s.shrink = 1;; s.shrink *= 4) {
      std::optional<Schedule> best;
      for (std::size_t way = begin; way < end; ++way) {
        if (p_.why_not(way) == nullptr) best = better(std::move(best), p_.make(way, *this, s));
      }
      if (best) return best;
      if (s.shrink >= most_shrink) break;
    }
  }
  return std::nullopt;
}

std::optional<Schedule> Search::choose(Cores cores) const {
  const auto& engine = p_.engine();
  if (cores == Cores::busy) return choose_in_slices(p_.base, engine.shrink_of_tiles());
  const std::int64_t most = engine.most_shrink();
  if (auto found = choose_in_slices(p_.base, most)) return found;
  // Each slice has statistics of every row; the caller's slices are left as they are.
  Schedule s = p_.base;
  if (s.source == BlockSource::caller) return std::nullopt;
  const std::int64_t longest =
      round_up(std::max<std::int64_t>(s.all.columns, 1), engine.rule().m_multiple);
  while (s.blocks.m < longest) {
    s.blocks.m = std::min(longest, 4 * s.blocks.m);
    if (auto found = choose_in_slices(s, most)) return found;
  }
  return std::nullopt;
}

std::optional<Schedule> Search::make(std::size_t way, Schedule s, Cores cores) const {
  const auto& engine = p_.engine();
  const std::int64_t most = cores == Cores::busy ? engine.shrink_of_tiles() : engine.most_shrink();
  for (s.shrink = 1;; s.shrink *= 4) {
    if (auto found = p_.make(way, *this, s)) return found;
    if (s.shrink >= most) return std::nullopt;
  }
}

std::int64_t least_words(const std::function<bool(std::int64_t)>& accepts) {
  std::int64_t high = 64;
  while (high < most_words && !accepts(high)) high *= 4;
  std::int64_t low = high / 4;
  while (high - low > 16) {  // 64 bytes are a region's granularity
    const std::int64_t middle = (low + high) / 2;
    (accepts(middle) ? high : low) = middle;
  }
  return high;
}

namespace {

std::optional<Choice> choose_any(const Problems& problems, const Limits& limits) {
  // A narrower tile costs less than cores that do nothing.
  for (const Cores cores : {Cores::busy, Cores::idle}) {
    for (const auto& problem : problems) {
      if (auto schedule = Search(*problem, limits).choose(cores)) {
        return Choice{problem, std::move(*schedule), limits, cores};
      }
    }
  }
  return std::nullopt;
}

std::int64_t minimum_bytes(const Problems& problems, std::int64_t allocation) {
  return 4 * least_words([&](std::int64_t words) {
           return choose_any(problems, {words, allocation}).has_value();
         });
}

/// The least maximum allocation with which there is a schedule.
std::int64_t least_allocation(const MakeProblems& problems, opencl::DeviceFacts facts) {
  return 4 * least_words([&](std::int64_t words) {
           // The number of pieces, each with slices of its own, depends on it too.
           facts.max_allocation_bytes = 4 * words;
           try {
             return choose_any(problems(facts), {most_words, words}).has_value();
           } catch (const Error&) {
             return false;  // not even a column
           }
         });
}

/// The default workspace is a wish, not a bound: the fastest shape that can run at all gets what it
/// needs.
std::optional<Choice> choose_by_wish(const Problems& problems, std::int64_t bytes,
                                     std::int64_t allocation) {
  for (const Cores cores : {Cores::busy, Cores::idle}) {
    for (const auto& problem : problems) {
      if (!Search(*problem, {most_words, allocation}).choose(cores)) continue;
      for (std::int64_t words = bytes / 4;; words += words / 4) {
        Limits limits{words, allocation};
        auto schedule = Search(*problem, limits).choose(cores);
        if (!schedule) continue;
        // Sums of gradients may take most of it and leave ranges of a few columns: the wish is for
        // all else then.
        if (problem->has_ranges && Search(*problem, limits).is_narrow(*schedule)) {
          limits.words += bytes / 4;
          if (auto wider = Search(*problem, limits).choose(cores)) schedule = std::move(wider);
        }
        return Choice{problem, std::move(*schedule), limits, cores};
      }
    }
  }
  return std::nullopt;
}

/// Throws where it is the caller's knobs that no schedule has.
void check_schedule_knobs(const MakeProblems& make, const opencl::DeviceFacts& facts,
                          const Limits& limits) {
  const auto problems = make(facts);
  const auto& first = *problems.front();
  const std::span<const NamedValue> all = first.knobs;
  std::vector<NamedValue> others(all.begin(), all.end());
  std::erase_if(others, [&](const NamedValue& knob) {
    return knob.name == "chunk_rows" || knob.name == first.range_knob;
  });
  if (others.size() == all.size()) return;
  for (const auto& problem : problems) problem->knobs = others;
  auto choice = choose_any(problems, limits);
  if (!choice && !first.workspace_bytes) {
    choice = choose_any(problems, {most_words, limits.allocation});
  }
  if (!choice) return;
  const auto& engine = choice->problem->engine();
  const Extents& at = choice->schedule.at;
  for (const auto& [name, value, unit] :
       {std::tuple{"chunk_rows", at.rows, engine.tile_n()},
        {first.range_knob, at.columns, engine.rule().m_multiple}}) {
    const auto given = dispatch::value_of(all, name);
    if (!given || *given == value) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("knobs: {} = {} is not to be had on opencl.{} with these shapes, block "
                            "sizes, workspace and knobs: it is a multiple of {}, {} where the call "
                            "chooses; leave it out, or change those",
                            name, *given, engine.name(), unit, value));
  }
}

}  // namespace

std::int64_t minimum_workspace_bytes(const MakeProblems& problems,
                                     const opencl::DeviceFacts& facts) {
  return minimum_bytes(problems(facts), facts.max_allocation_bytes / 4);
}

Choice make_schedule(const MakeProblems& make, const opencl::DeviceFacts& facts,
                     std::int64_t default_bytes) {
  const auto problems = make(facts);
  const auto& first = *problems.front();
  const std::int64_t bytes = first.workspace_bytes.value_or(default_bytes);
  const std::int64_t allocation = facts.max_allocation_bytes / 4;
  auto choice = first.workspace_bytes ? choose_any(problems, {bytes / 4, allocation})
                                      : choose_by_wish(problems, bytes, allocation);
  if (choice) {
    choice->schedule.steps = choice->problem->steps(choice->schedule);
    return std::move(*choice);
  }
  check_schedule_knobs(make, facts, {bytes / 4, allocation});
  if (!choose_any(problems, {most_words, allocation})) {
    throw Error(
        ErrorCode::out_of_memory,
        fmt::format(
            "no schedule of opencl.{} for {} keeps each piece of "
            "scratch within the device's maximum allocation of {} bytes; the least "
            "that any needs is {}{}, or use another implementation",
            first.engine().name(), first.extents(), facts.max_allocation_bytes,
            least_allocation(make, facts),
            first.base.source == BlockSource::caller ? "; give smaller block_sizes or none" : ""));
  }
  throw Error(ErrorCode::workspace_too_small,
              fmt::format("workspace_bytes (or the lent workspace) is {}, too small for {} on "
                          "opencl.{}; it needs at least {}",
                          bytes, first.extents(), first.engine().name(),
                          minimum_bytes(problems, allocation)));
}

}  // namespace tessera::schedule
