// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "host/engines/shares.hpp"
#include "host/schedule/search.hpp"

// Why a schedule is the one that a call has: `plan` says it, and no call asks for it.
namespace tessera::schedule {
namespace {

std::string mebibytes(std::int64_t words) {
  return fmt::format("{:.1f} MiB", static_cast<double>(words) / (1 << 18));
}

class Explanation {
 public:
  /// `best`: the problem of the fastest shape.
  Explanation(const Problem& best, const Choice& choice) : best_(best), choice_(choice) {}

  ConsideredSchedule of(std::size_t way, bool after_taken) const {
    const Problem& problem = *choice_.problem;
    const Way& own = problem.ways()[way];
    ConsideredSchedule result{.name = own.name, .logits = own.results};
    if (const char* reason = problem.why_not(way)) {
      result.reason = reason;
      return result;
    }
    const auto found = make(problem, way, choice_.limits);
    if (!found) {
      // With wider tiles than the call's a way may be none.
      explain_shortage(best_.why_not(way) == nullptr ? best_ : problem, way, result);
      return result;
    }
    result.name = found->name;
    result.workspace_bytes = 4 * found->scratch_words;
    const Search search(problem, choice_.limits);
    Cost cost = search.cost(*found);
    result.launches = std::move(cost.products);
    result.multiply_seconds = cost.multiply;
    result.memory_seconds = cost.memory;
    result.launch_seconds = cost.launches;
    result.predicted_share = engines::machine_share(result.launches);
    result.is_taken = !after_taken && is_taken(*found);
    const double taken = search.cost(choice_.schedule).seconds();
    result.reason = result.is_taken
                        ? "the first that is possible"
                        : why_not_taken(*found, after_taken, result.predicted_seconds() / taken);
    return result;
  }

 private:
  std::optional<Schedule> make(const Problem& problem, std::size_t way,
                               const Limits& limits) const {
    const Search search(problem, limits);
    if (&problem != choice_.problem.get()) return search.make(way, problem.base, Cores::busy);
    Schedule base = problem.base;
    // Slices are longer where memory had no room for those of the base.
    base.blocks.m = choice_.schedule.blocks.m;
    return search.make(way, std::move(base), choice_.cores);
  }

  bool is_taken(const Schedule& s) const {
    const Schedule& taken = choice_.schedule;
    return std::string_view(s.name) == taken.name && s.shrink == taken.shrink &&
           s.keeps_results() == taken.keeps_results() && s.order == taken.order &&
           s.at.rows == taken.at.rows && s.at.columns == taken.at.columns;
  }

  /// Why a way that more memory would make possible is not.
  void explain_shortage(const Problem& problem, std::size_t way, ConsideredSchedule& result) const {
    const Limits& limits = choice_.limits;
    const auto has = [&](const Limits& with) { return make(problem, way, with).has_value(); };
    if (has({most_words, limits.allocation})) {
      const std::int64_t least = least_words([&](std::int64_t words) {
        return has({words, limits.allocation});
      });
      result.workspace_bytes = 4 * least;
      result.reason = fmt::format("needs {} of scratch, and {} are allowed", mebibytes(least),
                                  mebibytes(limits.words));
    } else if (has({most_words, most_words})) {
      result.reason = fmt::format("a piece of its scratch is beyond the largest allocation, {}",
                                  mebibytes(limits.allocation));
    } else {
      result.reason =
          fmt::format("it has no chunk_rows and {} like those given", problem.range_knob);
    }
  }

  /// Why a schedule that is possible is not the call's.
  std::string why_not_taken(const Schedule& found, bool after_taken, double times) const {
    const char* taken = choice_.schedule.name;
    if (after_taken) return std::string("comes after ") + taken;
    if (found.shrink > choice_.schedule.shrink) {
      return fmt::format("has room for tiles of 1/{} only", found.shrink);
    }
    return fmt::format("is predicted to take {:.2f} times as long as {}", times, taken);
  }

  const Problem& best_;
  const Choice& choice_;
};

}  // namespace

std::vector<ConsideredSchedule> explain(const MakeProblems& problems,
                                        const opencl::DeviceFacts& facts,
                                        std::int64_t default_bytes) {
  const Choice choice = make_schedule(problems, facts, default_bytes);
  const auto best = problems(facts).front();
  const Explanation explanation(*best, choice);
  std::vector<ConsideredSchedule> list;
  bool after_taken = false;
  for (std::size_t way = 0; way < choice.problem->ways().size(); ++way) {
    auto one = explanation.of(way, after_taken);
    const bool beats_others = std::any_of(list.begin(), list.end(), [&](const auto& before) {
      return before.predicted_seconds() > one.predicted_seconds();
    });
    if (one.is_taken && beats_others) one.reason = "is predicted to take the least time";
    list.push_back(std::move(one));
    after_taken = after_taken || list.back().is_taken;
  }
  const auto& engine = choice.problem->engine();
  if (&engine == &best->engine()) return list;
  for (auto& one : list) {
    if (!one.is_taken) continue;
    one.reason += fmt::format(" with tiles of {} tokens; with wider ones none is", engine.tile_n());
  }
  return list;
}

}  // namespace tessera::schedule
