// SPDX-License-Identifier: Apache-2.0
#include "tuning/tune/search.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "bench/measure.hpp"
#include "bench/operator.hpp"
#include "programs/cli.hpp"
#include "tessera/version.hpp"
#include "tuning/lookup/lines.hpp"
#include "tuning/tune/child.hpp"

namespace tessera::tuning {
namespace {

/// A candidate that is this much slower than the heuristic when it is first looked at gets no
/// rounds: single measurements differ by that much.
constexpr double promising = 0.98;
/// Of a problem's time, what the search has at least; the rounds have the rest, or what they need.
constexpr double least_share_of_search = 0.4;

/// The command line of tessera-bench for one candidate.
std::vector<std::string> words_of(const bench::Options& options, const Problem& problem,
                                  const Candidate& candidate) {
  std::vector<std::string> words = {"--benchmark_format=json", "--no-peak-list",
                                    fmt::format("--samples={}", options.samples),
                                    fmt::format("--max-seconds={:g}", options.max_seconds)};
  if (!options.device.empty()) words.push_back("--device=" + options.device);
  if (options.threads) words.push_back(fmt::format("--threads={}", *options.threads));
  if (problem.custom) {
    words.push_back("--custom=" + options.custom);
    words.push_back(fmt::format("--candidate={}:{}", problem.custom->revision, candidate.differs));
    return words;
  }
  const auto& row = problem.row;
  const auto& key = row.problem;
  words.insert(words.end(), {fmt::format("--operators={}", key.op->name()),
                             fmt::format("--passes={}", to_string(row.pass)),
                             fmt::format("--implementations={}", row.implementation),
                             fmt::format("--dtypes={}:{}", to_string(key.x), to_string(key.w)),
                             fmt::format("--w-layout={}", key.w_is_vh ? "vh" : "hv"),
                             "--shapes=" + key.op->text_of(key.shape)});
  if (!candidate.block_sizes.empty()) {
    std::vector<std::int64_t> sizes;
    for (const auto& [name, value] : candidate.block_sizes) sizes.push_back(value);
    words.push_back(fmt::format("--block-sizes={}", fmt::join(sizes, ",")));
  }
  std::vector<std::string> knobs;
  for (const auto& [name, value] : candidate.knobs) {
    knobs.push_back(fmt::format("{}={}", name, value));
  }
  if (!knobs.empty()) words.push_back(fmt::format("--knobs={}", fmt::join(knobs, ",")));
  return words;
}

std::string text_of_seconds(double seconds) {
  return seconds < 100.0 ? fmt::format("{:.0f} s", std::max(seconds, 0.0))
                         : fmt::format("{:.0f} min", seconds / 60.0);
}

/// The candidates in the order in which they are looked at, without the heuristic.
std::vector<Candidate> in_order(const Space& space, Strategy strategy, std::uint64_t seed) {
  std::vector<Candidate> order(space.candidates.begin() + 1, space.candidates.end());
  if (strategy == Strategy::grid) return order;
  std::mt19937_64 lot(seed);
  // std::shuffle is another one with each standard library.
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[lot() % i]);
  if (strategy == Strategy::halving) {
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.changes < b.changes; });
  }
  return order;
}

void print_head(const Problem& problem) {
  fmt::print("{} ({})\n", problem.name(), problem.custom ? problem.custom->shape : problem.bucket);
}

class Tuner {
 public:
  Tuner(Context& context, const bench::Options& options, const SearchPlan& plan,
        const std::vector<Problem>& problems, RawResults known)
      : context_(context),
        options_(options),
        plan_(plan),
        writer_(plan.out, known.whole_bytes),
        end_(bench::now() + plan.budget_seconds) {
    for (auto& record : known.records) {
      const bool is_same = std::any_of(problems.begin(), problems.end(), [&](const auto& problem) {
        return problem.revision(revision()) == record["revision"] &&
               (!problem.custom || problem.custom->shape == record["shape"]);
      });
      if (!is_same) continue;
      known_.insert_or_assign(key_of(record), std::move(record));
    }
  }

  /// With an equal share of the time that is left for each of the problems that are.
  void tune(const Problem& problem, std::size_t place, std::size_t count) {
    start_ = bench::now();
    deadline_ = start_ + (end_ - start_) / static_cast<double>(count - place);
    problem_ = &problem;
    head_ = fmt::format("{} of {}", place + 1, count);
    taken_ = 0;
    failures_.clear();
    const Space space = make_space(context_, problem, plan_.vary);
    const Candidate own;
    const auto first = measure(own, 0, deadline_);
    print_head(problem);
    if (!first || !first->is_good()) {
      fmt::print("  given up: {}\n", first ? (*first)["status"] + ": " + (*first)["error"]
                                           : "there is no time left for it");
      return;
    }
    auto order = in_order(space, plan_.strategy, plan_.seed);
    // First what was good for another shape of the bucket: only such a candidate can get its row.
    auto& carried = by_bucket_[bucket_of(record_of(context_, problem))];
    std::stable_partition(order.begin(), order.end(),
                          [&](const auto& each) { return carried.contains(each.config()); });
    const auto turned = take_known();
    const auto found = turned.empty() ? search(order, own) : order;
    const auto best = finalists_of(order, found, carried, turned);
    for (const auto& each : best) carried.insert(each.config());
    const int rounds = best.empty() ? 0 : take_turns(best, own);
    fmt::print("  of {} candidates {} were tried and {} failed; {}\n", space.candidates.size(),
               scores_.size(), failures_.size(),
               best.empty() ? "none promises to be faster than the heuristic"
                            : fmt::format("{} took turns with the heuristic, {} rounds",
                                          best.size(), rounds));
    for (const auto& failure : failures_) fmt::print("    {}\n", failure);
    std::fflush(stdout);
  }

 private:
  /// What a row of a table is for.
  static std::string bucket_of(const Record& record) {
    return record.joined(
        {"operator", "pass", "implementation", "device", "dtype", "layout", "bucket"});
  }
  static std::string problem_of(const Record& record) {
    return bucket_of(record) + record.joined({"shape"});
  }
  static std::string key_of(const Record& record) {
    return problem_of(record) + record.joined({"config", "stage", "round"});
  }

  Record new_record(const Candidate& candidate, int round) const {
    Record record = record_of(context_, *problem_);
    record["config"] = candidate.config();
    record["block_sizes"] = text_of(candidate.block_sizes);
    record["knobs"] = text_of(candidate.knobs);
    record["stage"] = "search";
    record["round"] = std::to_string(round);
    return record;
  }

  /// The candidate's line, known from before or measured until then; nothing: there is no time
  /// left.
  std::optional<Record> measure(const Candidate& candidate, int round, double until) {
    Record record = new_record(candidate, round);
    const auto known = known_.find(key_of(record));
    if (known != known_.end()) return note(known->second);
    if (bench::now() >= until) return std::nullopt;
    const double begin = bench::now();
    measure_in_child(plan_.bench, words_of(options_, *problem_, candidate), plan_.timeout_seconds,
                     record);
    const auto of_library = record["revision"].empty() ? revision() : record["revision"];
    record["revision"] = problem_->revision(of_library);
    ++taken_;
    each_ += (bench::now() - begin - each_) / static_cast<double>(taken_);
    write(record);
    return note(record);
  }

  void write(const Record& record) {
    writer_.add(record);
    known_.insert_or_assign(key_of(record), record);
    fmt::print(stderr, "tessera-tune: {}, {} left: {} {} {}, {}: {}\n", head_,
               text_of_seconds(end_ - bench::now()), problem_->name(), record["stage"],
               record["round"], record["config"],
               record.is_good() ? fmt::format("{:.3f} ms, {:.1f}% of the peak",
                                              1e3 * record.number("median_seconds"),
                                              100.0 * record.number("share_of_peak"))
                                : record["status"] + ": " + record["error"]);
  }

  Record note(const Record& record) {
    if (!record.is_good()) {
      failures_.push_back(
          fmt::format("{}: {}: {}", record["config"], record["status"], record["error"]));
    }
    return record;
  }

  /// When the turns have to begin, by what a measurement takes.
  double end_of_search() const {
    const double turns = each_ * plan_.rounds * (1 + plan_.finalists);
    return std::max(deadline_ - turns, start_ + least_share_of_search * (deadline_ - start_));
  }

  /// Measures in a round of the search; false: there is no time left.
  bool look(const Candidate& candidate, int round) {
    const auto record = measure(candidate, round, end_of_search());
    if (record) add_score(*record);
    return record.has_value();
  }

  void add_score(const Record& record) {
    scores_[record["config"]][record["round"]] =
        record.is_good() ? record.number("share_of_peak") : NAN;
  }

  /// Takes the scores of an earlier run's search. Returns the configs whose turns had begun.
  std::set<std::string> take_known() {
    scores_.clear();
    std::set<std::string> turned;
    const auto problem = problem_of(record_of(context_, *problem_));
    for (const auto& [key, record] : known_) {
      if (problem_of(record) != problem) continue;
      if (record["stage"] == "search") add_score(record);
      if (record["stage"] == "final") turned.insert(record["config"]);
    }
    return turned;
  }

  /// In units of the peak beside each measurement; 0: it failed, or was not looked at.
  double score(const Candidate& candidate) const {
    std::vector<double> all;
    const auto found = scores_.find(candidate.config());
    if (found == scores_.end()) return 0.0;
    for (const auto& [round, each] : found->second) all.push_back(each);
    const bool good =
        std::all_of(all.begin(), all.end(), [](double x) { return std::isfinite(x); });
    return good ? bench::quantile(all, 0.5) : 0.0;
  }

  std::size_t rounds_of(const Candidate& candidate) const {
    const auto found = scores_.find(candidate.config());
    return found == scores_.end() ? 0 : found->second.size();
  }

  /// The best `count` of those that came furthest, of `most` rounds; fewer where no more ran.
  std::vector<Candidate> best_of(const std::vector<Candidate>& order, std::size_t count,
                                 std::size_t most = SIZE_MAX) const {
    std::vector<Candidate> best;
    std::size_t furthest = 0;
    for (const auto& each : order) furthest = std::max(furthest, rounds_of(each));
    for (furthest = std::min(furthest, most); furthest > 0 && best.size() < count; --furthest) {
      best.clear();
      std::copy_if(order.begin(), order.end(), std::back_inserter(best), [&](const auto& each) {
        return rounds_of(each) >= furthest && score(each) > 0.0;
      });
    }
    std::stable_sort(best.begin(), best.end(),
                     [&](const auto& a, const auto& b) { return score(a) > score(b); });
    if (best.size() > count) best.resize(count);
    return best;
  }

  /// Looks at candidates until there is only time for the turns. Returns those among which the best
  /// are.
  std::vector<Candidate> search(const std::vector<Candidate>& order, const Candidate& own) {
    if (plan_.strategy == Strategy::halving) return halve(order, own);
    look(own, 0);
    for (const auto& each : order) {
      if (!look(each, 0)) break;
    }
    return order;
  }

  /// The faster half goes on until few are left, which meet the next candidates then: how many
  /// there is time for shows only as they are measured, since the first measurement compiles.
  std::vector<Candidate> halve(const std::vector<Candidate>& order, const Candidate& own) {
    const auto finalists = static_cast<std::size_t>(plan_.finalists);
    std::vector<Candidate> left;
    for (std::size_t at = 0; at < order.size();) {
      // Half as many in each round, so that all rounds are twice the first, and the heuristic.
      const double fit = std::max((end_of_search() - bench::now()) / each_ / 2.0 - 2.0, 2.0);
      const auto next = std::min(order.size() - at, static_cast<std::size_t>(fit));
      left.insert(left.end(), order.begin() + at, order.begin() + at + next);
      at += next;
      for (std::size_t round = 0;; ++round) {
        bool in_time = look(own, static_cast<int>(round));
        for (const auto& each : left) in_time = in_time && look(each, static_cast<int>(round));
        if (!in_time) return left;
        if (left.size() <= finalists) break;
        left = best_of(left, std::max((left.size() + 1) / 2, finalists), round + 1);
      }
    }
    return left;
  }

  /// The candidates that take turns with the heuristic: those whose turns had begun; the best of
  /// those that had turns for another shape of the bucket; then the best of `found`.
  std::vector<Candidate> finalists_of(const std::vector<Candidate>& order,
                                      const std::vector<Candidate>& found,
                                      const std::set<std::string>& carried,
                                      const std::set<std::string>& turned) const {
    const auto count = static_cast<std::size_t>(plan_.finalists);
    std::vector<Candidate> known, best;
    const auto& first = turned.empty() ? carried : turned;
    std::copy_if(order.begin(), order.end(), std::back_inserter(known),
                 [&](const auto& each) { return first.contains(each.config()); });
    best = best_of(known, turned.empty() ? 1 : count);
    for (auto& each : best_of(found, count)) {
      const bool is_new = std::none_of(best.begin(), best.end(), [&](const auto& other) {
        return other.config() == each.config();
      });
      if (is_new) best.push_back(std::move(each));
    }
    if (best.size() > count) best.resize(count);
    std::erase_if(best, [&](const auto& each) { return score(each) < promising * score({}); });
    // Where time is short, all rounds of one are worth more than some of several.
    while (best.size() > 1 &&
           deadline_ - bench::now() < each_ * plan_.rounds * static_cast<double>(1 + best.size())) {
      best.pop_back();
    }
    return best;
  }

  /// Rounds in which every finalist and the heuristic have a process each, which take turns call by
  /// call. Returns the number of whole rounds.
  int take_turns(std::vector<Candidate> all, const Candidate& own) {
    all.insert(all.begin(), own);
    int round = 0;
    while (round < plan_.rounds && all.size() > 1) {
      std::vector<Record> records;
      for (const auto& each : all) {
        const auto searched = measure(each, 0, deadline_);
        if (!searched || !searched->is_good()) return round;
        records.push_back(*searched);
        records.back()["stage"] = "final";
        records.back()["round"] = std::to_string(round);
      }
      const bool is_known = std::all_of(records.begin(), records.end(), [&](const auto& record) {
        const auto found = known_.find(key_of(record));
        return found != known_.end() && found->second.is_good();
      });
      if (is_known || take_round(all, records)) {
        ++round;
        continue;
      }
      // One that fails leaves the turns, and the round begins anew.
      if (bench::now() >= deadline_ || !records.front().is_good()) break;
      for (std::size_t i = all.size(); i-- > 0;) {
        if (!records[i].is_good()) all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return round;
  }

  /// False: there is no time left, or one failed, which has the only line then.
  bool take_round(const std::vector<Candidate>& all, std::vector<Record>& records) {
    if (bench::now() >= deadline_) return false;
    std::vector<std::vector<std::string>> words;
    for (const auto& each : all) {
      words.push_back(words_of(options_, *problem_, each));
      words.back().insert(words.back().end(), {"--turns", problem_->name()});
    }
    turns_of_children(plan_.bench, words, options_.max_seconds, plan_.timeout_seconds, records);
    bool all_good = true;
    for (auto& record : records) all_good = all_good && record.is_good();
    for (auto& record : records) {
      record["revision"] = problem_->revision(revision());
      if (all_good || !record.is_good()) write(record);
      if (!record.is_good()) note(record);
    }
    return all_good;
  }

  Context& context_;
  const bench::Options& options_;
  const SearchPlan& plan_;
  RawWriter writer_;
  std::map<std::string, Record> known_{};
  double end_;                           ///< of all problems
  double start_ = 0.0, deadline_ = 0.0;  ///< of this one
  const Problem* problem_ = nullptr;
  std::string head_{};
  int taken_ = 0;                                                  ///< measurements of this problem
  double each_ = 3.0;                                              ///< seconds that one takes
  std::map<std::string, std::set<std::string>> by_bucket_{};       ///< configs that took turns
  std::map<std::string, std::map<std::string, double>> scores_{};  ///< by config, then by round
  std::vector<std::string> failures_{};
};

void print_space(Context& context, const Problem& problem, const SearchPlan& plan) {
  print_head(problem);
  const Space space = make_space(context, problem, plan.vary);
  fmt::print("  {} candidates, the heuristic among them\n", space.candidates.size());
  for (const auto& [rule, excluded] : space.excluded) {
    fmt::print("  {} excluded: {}\n", excluded.first, excluded.second);
  }
}

}  // namespace

void tune(Context& context, const bench::Options& options, const std::vector<Problem>& problems,
          const SearchPlan& plan) {
  std::vector<Problem> able;
  for (const auto& problem : problems) {
    if (problem.refusal.empty()) {
      able.push_back(problem);
    } else {
      fmt::print("{}: refused: {}\n", problem.name(), problem.refusal);
    }
  }
  if (able.empty()) throw Error(ErrorCode::unsupported, "none of these problems can be tuned here");
  if (plan.dry_run) {
    for (const auto& problem : able) print_space(context, problem, plan);
    return;
  }
  RawResults known;
  if (std::filesystem::is_regular_file(plan.out)) {
    if (!plan.resume) {
      programs::fail_call(fmt::format(
          "--out: the file '{}' is there; give --resume to go on with it, or another", plan.out));
    }
    known = read_raw(plan.out);
    for (const auto& each : known.problems) fmt::print(stderr, "tessera-tune: {}\n", each);
    if (!known.is_raw) {
      programs::fail_call(fmt::format(
          "--out: nothing of the file '{}' can be used; give another, which is not there yet",
          plan.out));
    }
  }
  std::signal(SIGPIPE, SIG_IGN);  // a process that takes turns may end before it is told to call
  Tuner tuner(context, options, plan, able, std::move(known));
  for (std::size_t i = 0; i < able.size(); ++i) tuner.tune(able[i], i, able.size());
}

}  // namespace tessera::tuning
