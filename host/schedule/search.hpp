// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/schedule/schedule.hpp"

namespace tessera::schedule {

/// The memory that a schedule may take.
struct Limits {
  std::int64_t words = 0;       ///< of all scratch
  std::int64_t allocation = 0;  ///< words of one region
};
constexpr std::int64_t most_words = std::int64_t{1} << 44;  ///< of scratch: beyond any device

/// Every core must have work, or some may idle for lack of memory: fewer work-groups, and fewer,
/// longer slices than the heuristic's.
enum class Cores { busy, idle };

/// Launches of less than this many columns are not worth their start.
constexpr std::int64_t fewest_columns = 256;

/// A way to nest the loops: a kind of schedule that a call may have.
struct Way {
  const char* name;     ///< of its schedules, or of the usual ones
  const char* results;  ///< ConsideredSchedule::logits
};

class Search;

/// A call of an operator on one shape of an engine, without its schedule.
class Problem {
 public:
  Problem(std::shared_ptr<const engines::Engine> engine, std::span<const NamedValue> given)
      : engine_(std::move(engine)), knobs(given) {}
  virtual ~Problem() = default;

  /// The schedule's steps. It has all but those and its scratch.
  virtual Steps steps(const Schedule& schedule) const = 0;
  /// Corrects what a choice of `at` makes pointless.
  virtual void settle(Schedule& schedule) const { (void)schedule; }
  /// Words of scratch beside those of the steps.
  virtual std::int64_t other_words() const { return 0; }
  /// Rows whose results a range holds.
  virtual std::int64_t held_rows(const Schedule& s) const { return s.at.rows; }
  /// Ranges are multiples of this, and begin best at multiples of the second.
  virtual std::int64_t range_unit(const Schedule&) const { return engine_->rule().m_multiple; }
  virtual std::int64_t range_step() const { return 1; }
  /// "B 5, H 4, V 7", for errors.
  virtual std::string extents() const = 0;
  /// Rates of the visited product.
  virtual engines::Rates rates() const = 0;

  /// Best first. `why_not`: why no memory would make the way possible; nullptr: some would.
  virtual std::span<const Way> ways() const = 0;
  virtual const char* why_not(std::size_t way) const = 0;
  virtual std::optional<Schedule> make(std::size_t way, const Search& search,
                                       const Schedule& from) const = 0;
  /// Ways that are compared by time, [begin, end) of each group; a group is looked at where the
  /// ones before it have none that fits.
  virtual std::vector<std::pair<std::size_t, std::size_t>> groups() const {
    return {{0, ways().size()}};
  }

  const engines::Engine& engine() const { return *engine_; }
  const std::shared_ptr<const engines::Engine>& shared_engine() const { return engine_; }
  std::optional<std::int64_t> given(const char* knob) const;
  /// All rows that count, in whole tiles.
  std::int64_t all_rows(const Schedule& schedule) const;

 protected:
  mutable std::vector<Step> spare_{};  ///< memory for the next list of steps

 private:
  friend class Search;
  /// Searches ask the same again and again.
  enum class Asked { time, best, fuller };
  struct Known {
    double seconds = 0.0;
    double lost = 0.0;       ///< seconds that work-groups wait, or share lines
    std::int64_t range = 0;  ///< the best, or fuller one
  };
  std::shared_ptr<const engines::Engine> engine_;
  mutable std::map<std::array<std::int64_t, 9>, Known> known_{};

 public:
  Schedule base{};                    ///< with blocks, all, piece; a search fills in the rest
  std::span<const NamedValue> knobs;  ///< the caller's
  std::optional<std::int64_t> workspace_bytes{};
  const char* range_knob = "range";
  bool has_ranges = true;  ///< the search chooses a width of ranges that takes little time
};

/// The problem of each shape of an engine, fastest first, for a device of these facts.
using Problems = std::vector<std::shared_ptr<Problem>>;
using MakeProblems = std::function<Problems(const opencl::DeviceFacts&)>;

/// Looks for the best schedules of a problem within limits.
class Search {
 public:
  Search(const Problem& problem, const Limits& limits) : p_(problem), limits_(limits) {}

  /// Fills in the rest of a schedule, but for its steps; true: it is within the limits.
  bool fits(Schedule& schedule) const;
  /// Sets the rows, or columns, that are treated at a time to the most that fits, up to `most`,
  /// evened out; false: none does.
  bool fit_rows(Schedule& schedule, std::int64_t most) const;
  bool fit_range(Schedule& schedule, std::int64_t most) const;
  /// Columns of a range, up to `most`: those whose results the next launch finds in the cache
  /// (Engine::cached_words), or twice as many, and so on. Fewer take less scratch, so more have to
  /// be worth it (Rates::worth_scratch).
  std::int64_t best_range(const Schedule& schedule, std::int64_t most) const;
  /// The first, or the second where that takes less time.
  std::optional<Schedule> better(std::optional<Schedule> first,
                                 std::optional<Schedule> second) const;
  /// The problem's best schedule.
  std::optional<Schedule> choose(Cores cores) const;
  /// The schedule of one way, with the largest tiles that fit.
  std::optional<Schedule> make(std::size_t way, Schedule base, Cores cores) const;
  /// True where scratch was short: a range has fewer columns than are worth a launch, a chunk fewer
  /// rows than the caller's blocks ask for, or a range as wide as is best would save 5% of the
  /// call.
  bool is_narrow(const Schedule& schedule) const;
  /// The predicted time of a schedule that `fits` has completed.
  Cost cost(const Schedule& schedule) const;

 private:
  void complete(Schedule& s) const;
  void settle(Schedule& s) const;
  std::pair<Problem::Known&, bool> known(Problem::Asked asked, const Schedule& s,
                                         std::int64_t range) const;
  const Problem::Known& predicted(const Schedule& s) const;
  const Problem::Known& predicted_with(Schedule s, std::int64_t range) const;
  std::int64_t fuller_range(const Schedule& s, std::int64_t even) const;
  std::int64_t evened_range(const Schedule& s, std::int64_t range) const;
  std::int64_t largest_that_fits(const Schedule& s, std::int64_t Extents::*field, std::int64_t unit,
                                 std::int64_t most) const;
  bool is_as_given(Schedule& s, std::int64_t Extents::*field, std::int64_t value, std::int64_t unit,
                   std::int64_t extent) const;
  std::optional<Schedule> choose_in_slices(Schedule base, std::int64_t most_shrink) const;

  const Problem& p_;
  Limits limits_;
};

/// A schedule, the problem that it solves, and the limits within which it was chosen.
struct Choice {
  std::shared_ptr<const Problem> problem{};
  Schedule schedule{};
  Limits limits{};
  Cores cores = Cores::busy;
};

/// The schedule of the fastest shape that has one within the limits of the request and the device.
/// Throws Error workspace_too_small, with the minimum, out_of_memory where no piece of scratch fits
/// the device's largest allocation, with the least that does, and invalid_argument where no
/// schedule has the caller's knobs.
Choice make_schedule(const MakeProblems& problems, const opencl::DeviceFacts& facts,
                     std::int64_t default_bytes);

/// Every way of the first problem: the one that make_schedule takes, and why not the others. Throws
/// as make_schedule does.
std::vector<ConsideredSchedule> explain(const MakeProblems& problems,
                                        const opencl::DeviceFacts& facts,
                                        std::int64_t default_bytes);

/// The least workspace_bytes for which make_schedule succeeds.
std::int64_t minimum_workspace_bytes(const MakeProblems& problems,
                                     const opencl::DeviceFacts& facts);

/// The least `words` up to most_words that `accepts` takes, which takes all that are more; more
/// than most_words: none.
std::int64_t least_words(const std::function<bool(std::int64_t words)>& accepts);

}  // namespace tessera::schedule
