// SPDX-License-Identifier: Apache-2.0
// Plans of the linear operators for machines that are not here. A generator draws questions; each
// is a line on stdout, with its plan, to compare with the lines of another revision.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <utility>

#include "host/opencl/runtime.hpp"
#include "host/opencl/specialise.hpp"
#include "tessera/tessera.hpp"
#include "tests/plans/planner.hpp"
#include "tests/plans/questions.hpp"

namespace tessera::test {
namespace {

std::string plan_text(const Planned& p) {
  std::vector<std::string> kernels, launches;
  for (const auto& [program, entry] : p.kernels) {
    kernels.push_back(fmt::format("{}:{}", program.file, entry));
  }
  for (const auto& one : p.launches) {
    launches.push_back(fmt::format("{}*{}/{}/{:.9g}/{:.9g}/{:.9g}", one.kernel, one.times,
                                   one.groups, one.share, one.flops, one.bytes));
  }
  return fmt::format(
      "schedule={}|blocks={},{}|knobs={}|engine={},{}|regions={}|scratch={}|kernels={}|"
      "launches={}|seconds={:.9g}/{:.9g}/{:.9g}",
      p.schedule, text(to_named(p.blocks)), to_string(p.source), text(p.knobs), p.engine, p.tile_n,
      text(p.regions), p.scratch_words, fmt::join(kernels, ","), fmt::join(launches, ","),
      p.seconds[0], p.seconds[1], p.seconds[2]);
}

/// A context for each machine, made when it is needed.
class Machines {
 public:
  Context& of(const Question& q) {
    auto& context = contexts_[q.machine->info.name];
    if (!context) {
      context = std::make_unique<Context>(ContextOptions{
          .plan_for = q.machine->info.name, .warning_handler = [](const std::string&) {}});
    }
    auto& most = opencl::runtime_of(context->state())->facts_for_test().max_allocation_bytes;
    most = q.allocation > 0 ? q.allocation : q.machine->facts.max_allocation_bytes;
    return *context;
  }

 private:
  std::map<std::string, std::unique_ptr<Context>> contexts_;
};

struct Answer {
  std::optional<Planned> planned{};
  std::string error{};                                     ///< where there is none
  std::int64_t workspace_bytes = 0, allocation_bytes = 0;  ///< that it may take
  double microseconds = 0.0;  ///< to find a schedule, or that there is none
};

Answer answer(Machines& machines, const Question& q) {
  Answer a;
  try {
    Context& context = machines.of(q);
    const auto& facts = opencl::runtime_of(context.state())->facts();
    a.allocation_bytes = facts.max_allocation_bytes;
    std::vector<std::string> serving;
    std::string reason;
    for (const auto& entry : engines::all_engines()) {
      const auto why = operators::why_unsupported(context, "opencl." + entry.name, call_of(q, 0));
      if (!why) serving.push_back(entry.name);
      if (why) reason = *why;
    }
    if (serving.empty()) throw Error(ErrorCode::unsupported, reason);
    const std::string& engine = serving[q.engine % serving.size()];
    const auto with_planner = [&](const auto& use) {
      operators::with_checked(context, call_of(q, a.workspace_bytes), operators::Form::question,
                              [&](const auto& checked) {
                                Planner planner(checked, q.distills, engine, facts);
                                use(planner);
                                return true;
                              });
    };
    if (q.quarters > 0) {
      std::int64_t least = 0;
      with_planner([&](const Planner& planner) { least = planner.minimum_workspace_bytes(); });
      a.workspace_bytes = least / 4 * q.quarters;
    }
    with_planner([&](Planner& planner) {
      const auto begin = std::chrono::steady_clock::now();
      const auto stop = [&] {
        const std::chrono::duration<double, std::micro> taken =
            std::chrono::steady_clock::now() - begin;
        a.microseconds = taken.count();
      };
      try {
        planner.plan();
      } catch (...) {
        stop();
        throw;
      }
      stop();
      a.planned = planner.planned();
    });
  } catch (const Error& error) {
    a.error = error.what();
    std::replace(a.error.begin(), a.error.end(), '|', '/');
  }
  return a;
}

std::string line_of(const Question& q, const Answer& a) {
  return text(q) + "|" + (a.planned ? plan_text(*a.planned) : "error=" + a.error);
}

/// Calls `use(question, answer)` for so many.
template <class Use>
void for_each(std::int64_t count, std::uint64_t seed, const Use& use) {
  Draw draw(seed);
  Machines machines;
  for (std::int64_t i = 0; i < count; ++i) {
    const Question q = draw_question(draw);
    use(q, answer(machines, q));
  }
}

/// Why a plan contradicts itself or the question; empty: it does not.
std::string contradiction(const Answer& a) {
  const Planned& p = *a.planned;
  std::int64_t words = p.row_words, largest = 0;
  for (const auto& region : p.regions) {
    words += opencl::region_words(region.value);
    largest = std::max(largest, region.value);
  }
  if (words != p.scratch_words) return fmt::format("regions come to {} words", words);
  if (4 * largest > a.allocation_bytes) return "a region is beyond the largest allocation";
  if (a.workspace_bytes > 0 && 4 * words > a.workspace_bytes) return "workspace is too small";
  for (const double seconds : p.seconds) {
    if (!std::isfinite(seconds) || seconds < 0.0) return "a time is no time";
  }
  for (const auto& one : p.launches) {
    if (one.flops > 0.0 && !(one.share > 0.0 && one.share <= 1.0)) return one.kernel + ": share";
  }
  return {};
}

int check(std::int64_t count, std::uint64_t seed) {
  std::int64_t failures = 0, errors = 0;
  for_each(count, seed, [&](const Question& q, const Answer& a) {
    errors += a.planned ? 0 : 1;
    const std::string why = a.planned ? contradiction(a) : "";
    if (why.empty()) return;
    ++failures;
    fmt::print("{}: {}\n", why, line_of(q, a));
  });
  fmt::print("{} questions, {} errors, {} contradictions\n", count, errors, failures);
  return failures == 0 && 4 * errors <= count ? 0 : 1;
}

int time_plans(std::int64_t count, std::uint64_t seed) {
  std::map<std::string, std::vector<double>> times;
  for_each(count, seed, [&](const Question& q, const Answer& a) {
    const char* name = q.distills ? "linear_distillation" : "linear_cross_entropy";
    for (const std::string& row :
         {std::string("all"), fmt::format("{} {}", name, to_string(q.pass))}) {
      times[row].push_back(a.microseconds);
    }
  });
  for (auto& [row, all] : times) {
    std::sort(all.begin(), all.end());
    double total = 0.0;
    for (const double one : all) total += one;
    fmt::print("{}: {} plans, {:.1f} ms, median {:.1f} us, longest {:.1f} us\n", row, all.size(),
               total / 1e3, all[all.size() / 2], all.back());
  }
  return 0;
}

/// The fields of a line by their names.
std::map<std::string, std::string> fields_of(const std::string& line) {
  std::map<std::string, std::string> fields;
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find('|', begin), line.size());
    const std::size_t middle = std::min(line.find('=', begin), end);
    fields[line.substr(begin, middle - begin)] = line.substr(middle, end - middle);
    begin = end + 1;
  }
  return fields;
}

int compare(const std::string& path, std::uint64_t seed) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::size_t at = 0;
  std::int64_t differ = 0;
  std::map<std::string, std::int64_t> by_field;
  for_each(static_cast<std::int64_t>(lines.size()), seed, [&](const Question& q, const Answer& a) {
    const std::string& before = lines[at++];
    const std::string now = line_of(q, a);
    if (now == before) return;
    const bool is_example = ++differ <= 20;
    if (is_example) fmt::print("line {}: {}\n", at, text(q));
    auto then = fields_of(before);
    for (const auto& [name, value] : fields_of(now)) {
      if (const std::string old = std::exchange(then[name], value); old != value) {
        ++by_field[name];
        if (is_example) fmt::print("  {}\n    was {}\n    now {}\n", name, old, value);
      }
    }
  });
  for (const auto& [name, times] : by_field) fmt::print("{} differs in {} lines\n", name, times);
  fmt::print("{} of {} lines differ\n", differ, lines.size());
  return differ == 0 && !lines.empty() ? 0 : 1;
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  namespace test = tessera::test;
  CLI::App app("Plans of linear operators for questions that a generator draws.");
  std::int64_t count = 20000;
  std::uint64_t seed = 1;
  bool checks = false, times = false;
  std::string path;
  app.add_option("--count", count, "questions")->capture_default_str();
  app.add_option("--seed", seed, "of the generator")->capture_default_str();
  app.add_flag("--check", checks, "print only what contradicts itself");
  app.add_flag("--seconds", times, "print how long it takes to find a schedule");
  app.add_option("--compare", path, "print what differs from the lines of this file");
  CLI11_PARSE(app, argc, argv);
  try {
    if (checks) return test::check(count, seed);
    if (times) return test::time_plans(count, seed);
    if (!path.empty()) return test::compare(path, seed);
    test::for_each(count, seed, [](const auto& question, const auto& answer) {
      fmt::print("{}\n", test::line_of(question, answer));
    });
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plans: %s\n", error.what());
    return 2;
  }
}
