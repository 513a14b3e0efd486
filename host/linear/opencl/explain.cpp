// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/engines/shares.hpp"
#include "host/linear/opencl/cost.hpp"

// Why a schedule is the one that a call has: what `plan` says, and no call asks for.
namespace tessera::linear {
namespace {

std::string mebibytes(std::int64_t words) {
  return fmt::format("{:.1f} MiB", static_cast<double>(words) / (1 << 18));
}

const char* why_not(const Way& way, const Request& r, const Choice& choice) {
  return way.why_not != nullptr ? way.why_not(r, *choice.engine, choice.base) : nullptr;
}

/// The choice of one way, with the largest tiles that fit.
std::optional<Schedule> make(const Way& way, const Request& r, const Choice& choice,
                             const Limits& limits) {
  const auto& engine = *choice.engine;
  const std::int64_t most =
      choice.cores == Cores::busy ? engine.shrink_of_tiles() : engine.most_shrink();
  Schedule s = choice.base;
  // Slices are longer where memory had no room for those of the base.
  s.blocks.v_block_size = choice.schedule.blocks.v_block_size;
  for (s.shrink = 1;; s.shrink *= 4) {
    if (auto found = way.make(r, engine, s, limits)) return found;
    if (s.shrink >= most) return std::nullopt;
  }
}

bool is_same(const Schedule& a, const Schedule& b) {
  return a.name == b.name && a.shrink == b.shrink && a.keeps_logits == b.keeps_logits &&
         a.v_outer == b.v_outer && a.chunk_rows == b.chunk_rows && a.v_range == b.v_range;
}

/// Why a way that more memory would make possible is not; `best` is what it would be looked for
/// with.
void explain_shortage(const Way& way, const Request& r, const Choice& best, const Limits& limits,
                      ConsideredSchedule& result) {
  if (make(way, r, best, {most_words, limits.allocation})) {
    const std::int64_t least = least_words([&](std::int64_t words) {
      return make(way, r, best, {words, limits.allocation}).has_value();
    });
    result.workspace_bytes = 4 * least;
    result.reason = fmt::format("needs {} of scratch, and {} are allowed", mebibytes(least),
                                mebibytes(limits.words));
  } else if (make(way, r, best, {most_words, most_words})) {
    result.reason = fmt::format("a piece of its scratch is beyond the largest allocation, {}",
                                mebibytes(limits.allocation));
  } else {
    result.reason = "it has no chunk_rows and v_range like those given";
  }
}

/// Why a schedule that is possible is not the call's.
std::string why_not_taken(const Schedule& found, const Choice& choice, bool after_taken,
                          double times) {
  const std::string& taken = choice.schedule.name;
  if (after_taken) return "comes after " + taken;
  if (found.shrink > choice.schedule.shrink) {
    return fmt::format("has room for tiles of 1/{} only", found.shrink);
  }
  return fmt::format("is predicted to take {:.2f} times as long as {}", times, taken);
}

ConsideredSchedule explain_one(const Way& way, const Request& r, const Choice& best,
                               const Choice& choice, bool after_taken) {
  ConsideredSchedule result{.name = way.name, .logits = way.logits};
  if (const char* reason = why_not(way, r, choice)) {
    result.reason = reason;
    return result;
  }
  const auto found = make(way, r, choice, choice.limits);
  if (!found) {
    // With wider tiles than the call's a way may be none.
    const Choice& from = why_not(way, r, best) == nullptr ? best : choice;
    explain_shortage(way, r, from, choice.limits, result);
    return result;
  }
  result.name = found->name;
  result.workspace_bytes = 4 * found->scratch_words;
  Cost cost = cost_of(r, *choice.engine, *found);
  result.launches = std::move(cost.products);
  result.multiply_seconds = cost.multiply;
  result.memory_seconds = cost.memory;
  result.launch_seconds = cost.launches;
  result.predicted_share = engines::machine_share(result.launches);
  result.is_taken = !after_taken && is_same(*found, choice.schedule);
  const double taken = cost_of(r, *choice.engine, choice.schedule).seconds();
  result.reason = result.is_taken ? "the first that is possible"
                                  : why_not_taken(*found, choice, after_taken,
                                                  result.predicted_seconds() / taken);
  return result;
}

}  // namespace

std::vector<ConsideredSchedule> explain(const Request& r, const engines::EngineShapes& shapes,
                                        const opencl::DeviceFacts& facts, const Teacher& teacher) {
  const Choice choice = make_schedule(r, shapes, facts, teacher);
  Choice best = candidates_of(r, shapes, facts, teacher).front();
  best.schedule = best.base;
  std::vector<ConsideredSchedule> list;
  bool after_taken = false;
  for (const Way& way : ways_of(r)) {
    auto one = explain_one(way, r, best, choice, after_taken);
    const bool beats_others = std::any_of(list.begin(), list.end(), [&](const auto& before) {
      return before.predicted_seconds() > one.predicted_seconds();
    });
    if (one.is_taken && beats_others) one.reason = "is predicted to take the least time";
    list.push_back(std::move(one));
    after_taken = after_taken || list.back().is_taken;
  }
  if (choice.engine == best.engine) return list;
  for (auto& one : list) {
    if (!one.is_taken) continue;
    one.reason +=
        fmt::format(" with tiles of {} tokens; with wider ones none is", choice.engine->tile_n());
  }
  return list;
}

}  // namespace tessera::linear
