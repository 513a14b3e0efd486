// SPDX-License-Identifier: Apache-2.0
#include "tuning/tune/space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "bench/operator.hpp"
#include "tuning/lookup/lines.hpp"
#include "tuning/tune/raw.hpp"

namespace tessera::tuning {
namespace {

const std::int64_t* value_of(const std::vector<NamedValue>& list, const std::string& name) {
  for (const auto& each : list) {
    if (each.name == name) return &each.value;
  }
  return nullptr;
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Which names may change.
class Varied {
 public:
  explicit Varied(const std::vector<std::string>& names) : names_(names) {}
  bool operator()(const std::string& name) const {
    return names_.empty() || std::find(names_.begin(), names_.end(), name) != names_.end();
  }

 private:
  const std::vector<std::string>& names_;
};

/// What a call reports of itself with these; throws Error where they are illegal.
Dispatch foresee(Context& context, bench::Row row, const Candidate& candidate) {
  bench::Options options;
  options.knobs = candidate.knobs;
  row.block_sizes = candidate.block_sizes;
  return row.problem.op->foresee(context, row, options);
}

/// The rule that a message states: what it says of any numbers.
std::string rule_of(const std::string& message) {
  std::string rule;
  for (const char letter : message) {
    const bool digit = letter >= '0' && letter <= '9';
    if (!digit) rule += letter;
    if (digit && !rule.ends_with('N')) rule += 'N';
  }
  return rule;
}

/// The knobs of a choice that the implementation has otherwise; false: one of them must not change.
bool changed_knobs(const dispatch::Choice& choice, const Dispatch& own, const Varied& varies,
                   std::vector<NamedValue>& knobs) {
  for (const auto& knob : choice.knobs) {
    const auto* value = value_of(own.knobs, knob.name);
    if (value != nullptr && *value == knob.value) continue;
    if (!varies(knob.name)) return false;
    knobs.push_back(knob);
  }
  return true;
}

/// Adds the candidates of one choice of knobs: the implementation's own blocks with them, `own`,
/// and all that vary around these.
void add_blocks(const bench::Row& row, const dispatch::Choice& choice, const Candidate& start,
                const std::vector<NamedValue>& own, const Varied& varies,
                std::vector<Candidate>& all) {
  all.push_back(start);
  std::vector<Candidate> some = {start};
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto& [name, base] = own[i];
    const std::int64_t multiple = choice.multiples.empty() ? 1 : choice.multiples[i];
    const std::int64_t most =
        round_up(row.problem.op->extent_along(row.problem.shape, name), multiple);
    std::set<std::int64_t> values = {base};
    for (const std::int64_t quarters : {1, 2, 8, 16}) {
      if (!varies(name)) break;
      values.insert(
          std::min(round_up(std::max<std::int64_t>(base * quarters / 4, 1), multiple), most));
    }
    std::vector<Candidate> more;
    for (const auto& candidate : some) {
      for (const auto value : values) {
        more.push_back(candidate);
        more.back().block_sizes.push_back({name, value});
        more.back().changes += value == base ? 0 : 1;
      }
    }
    some = std::move(more);
  }
  std::copy_if(some.begin(), some.end(), std::back_inserter(all),
               [&](const auto& each) { return each.changes > start.changes; });
}

std::vector<dispatch::Choice> choices_of(Context& context, const bench::Row& row) {
  auto choices = row.problem.op->choices(context, row, {});
  if (choices.empty()) choices.emplace_back();  // its knobs follow from the call
  return choices;
}

Space space_of(const bench::CustomRow& row) {
  Space space{.candidates = {Candidate{}}};
  std::set<std::string> seen = {""};  // the row itself
  for (const auto& each : row.candidates) {
    if (!seen.insert(each.config).second) {
      const std::string rule = "it would run as the row or a candidate before it does";
      ++space.excluded.try_emplace(rule, 0, rule).first->second.first;
      continue;
    }
    const auto changes = 1 + std::count(each.config.begin(), each.config.end(), ' ');
    space.candidates.push_back({.block_sizes = each.options.block_sizes,
                                .knobs = each.options.knobs,
                                .changes = static_cast<int>(changes),
                                .differs = each.config});
  }
  return space;
}

}  // namespace

std::string Candidate::config() const {
  if (!differs.empty()) return differs;
  std::string text;
  for (const auto& [name, value] : block_sizes) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name.front(), value);
  }
  const auto with = text_of(knobs);
  if (!with.empty()) text += (text.empty() ? "" : " ") + with;
  return text.empty() ? std::string(heuristic) : text;
}

std::vector<std::string> varied_names(Context& context, const bench::Row& row) {
  std::vector<std::string> names;
  for (const auto& axis : row.problem.op->block_axes()) names.push_back(axis.name);
  const auto choices = choices_of(context, row);
  for (const auto& knob : choices.front().knobs) names.push_back(knob.name);
  return names;
}

Space make_space(Context& context, const Problem& problem, const std::vector<std::string>& vary) {
  if (problem.custom) return space_of(*problem.custom);
  const auto& row = problem.row;
  const Varied varies(vary);
  Space space;
  const auto exclude = [&](const std::string& rule, const std::string& example) {
    ++space.excluded.try_emplace(rule, 0, example).first->second.first;
  };
  const Dispatch own = foresee(context, row, {});
  std::vector<Candidate> all;
  for (const auto& choice : choices_of(context, row)) {
    Candidate start;
    if (!changed_knobs(choice, own, varies, start.knobs)) continue;
    start.changes = static_cast<int>(start.knobs.size());
    try {
      add_blocks(row, choice, start, foresee(context, row, start).block_sizes, varies, all);
    } catch (const Error& error) {
      exclude(rule_of(error.what()), error.what());
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.changes < b.changes; });
  std::map<std::string, std::string> seen;  // by what would run, the config of the first
  for (const auto& candidate : all) {
    try {
      const auto runs = foresee(context, row, candidate);
      const auto what = runs.schedule + '/' + text_of(runs.block_sizes) + '/' + text_of(runs.knobs);
      const auto [first, is_new] = seen.emplace(what, candidate.config());
      if (is_new) space.candidates.push_back(candidate);
      if (!is_new && candidate.config() != first->second) {
        exclude("it would run as another does",
                fmt::format("{} would run as {} does", candidate.config(), first->second));
      }
    } catch (const Error& error) {
      exclude(rule_of(error.what()), error.what());
    }
  }
  return space;
}

}  // namespace tessera::tuning
