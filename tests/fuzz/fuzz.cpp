// SPDX-License-Identifier: Apache-2.0
// Runs problems that nobody chose, legal and illegal ones, on each implementation against the
// oracle, and makes a short program of what fails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "tests/fuzz/random_case.hpp"
#include "tests/fuzz/shrink.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/operators.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test::fuzz {
namespace {

/// Those of this project's engines that this build has; a host-only build has two of the four.
std::vector<std::string> built_implementations() {
  std::vector<std::string> built;
  for (const char* name : {"opencl.cpu", "opencl.simt", "eigen", "tpu_tile"}) {
    const auto has = [&](const TestOperator* op) {
      return std::ranges::any_of(op->implementations(),
                                 [&](const auto& info) { return info.name == name; });
    };
    if (std::ranges::any_of(test_operators(), has)) built.emplace_back(name);
  }
  return built;
}

struct Options {
  std::uint64_t seed = 1;
  std::int64_t cases = 1500;
  std::int64_t only = -1;
  std::int64_t profiles = 8;
  double minutes = 1e9;
  bool shrinks = true;
  bool first_failure = false;
  std::vector<std::string> implementations = built_implementations();
};

struct Counts {
  std::int64_t served = 0, refused = 0, failed = 0, illegal = 0;
};

/// Runs the problem as it is; empty: nothing failed.
std::string failures_of(const std::string& implementation, Pass pass, const Case& c,
                        bool* served = nullptr) {
  const std::string text = test::failures_of([&] {
    const bool ran = run_case(implementation, pass, c);
    if (served != nullptr) *served = ran;
  });
  forget(c);
  return text;
}

std::string first_lines(const std::string& text, int lines) {
  std::size_t end = 0;
  while (lines-- > 0 && end != std::string::npos) end = text.find('\n', end + (end > 0 ? 1 : 0));
  return text.substr(0, end);
}

/// A problem that shrinks must not turn from a wrong one into one that is not served.
bool is_refusal(const std::string& text) { return text.find("refused: ") != std::string::npos; }

void report(const Options& o, const Source& source, const Request& request,
            const std::string& failures) {
  fmt::print("\n== problem {} of seed {} on {}, {}:\n{}\n", source.index, o.seed,
             source.implementation, to_string(request.pass), first_lines(failures, 12));
  Case least = request.c;
  if (o.shrinks) {
    least = shrink(request.c, [&](const Case& c) {
      const std::string text = failures_of(source.implementation, request.pass, c);
      return !text.empty() && is_refusal(text) == is_refusal(failures);
    });
    fmt::print("-- the smallest found:\n{}\n",
               first_lines(failures_of(source.implementation, request.pass, least), 6));
  }
  fmt::print(
      "TEST(Fuzz, Problem{}Of{}) {{\n{}  run_case(\"{}\", Pass::{}, c);\n}}\n-- again: fuzz --seed "
      "{} --only {} --profiles {}\n",
      source.index, o.seed, to_code(least), source.implementation, to_string(request.pass), o.seed,
      source.index, o.profiles);
  std::fflush(stdout);
}

/// A workspace from the least that the plan allows, or the knobs that it reports, given back.
void set_execution(const Source& source, Request& request, Random& random) {
  const bool bounded = random.once_in(4);
  const bool turned = !bounded && random.once_in(6);
  if (!bounded && !turned) return;
  Case& c = request.c;
  try {
    const Plan plan = plan_case(shared_context(), source.implementation, request.pass, c);
    const auto least = plan.minimum_workspace_bytes;
    if (bounded && least > 0) {
      const auto most = std::max(plan.workspace_bytes, least) - least + 1;
      c.workspace_bytes =
          static_cast<std::size_t>(least + (random.once_in(2) ? 0 : random.below(most)));
    }
    if (turned) c.knobs = plan.dispatch.knobs;
  } catch (const Error&) {
    // Blocks that are not legal here; the call itself says so.
  }
}

/// A legal problem, then the same with something wrong in it.
void run_one(const Options& o, const Source& source, Counts& counts) {
  Request request = random_request(source);
  // Where there is no device memory, the same problem on the host's.
  if (!shared_context().has_device()) request.c.place = Place::host;
  Random random((o.seed << 20) + static_cast<std::uint64_t>(source.index));
  set_execution(source, request, random);
  bool served = false;
  std::string failures = failures_of(source.implementation, request.pass, request.c, &served);
  (served ? counts.served : counts.refused) += 1;
  if (!failures.empty()) {
    ++counts.failed;
    report(o, source, request, failures);
  }
  std::string broken;
  failures = test::failures_of([&] {
    broken = run_broken_case(source.implementation, request.pass, request.c, random.next());
  });
  forget(request.c);
  ++counts.illegal;
  if (failures.empty()) return;
  ++counts.failed;
  fmt::print("\n== problem {} of seed {} on {}, {}, with {}:\n{}\n{}\n", source.index, o.seed,
             source.implementation, to_string(request.pass), broken, first_lines(failures, 12),
             to_code(request.c));
  std::fflush(stdout);
}

int run(const Options& o) {
  const auto start = std::chrono::steady_clock::now();
  const auto minutes = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 60.0;
  };
  std::map<std::string, Counts> counts;
  const std::int64_t first = o.only >= 0 ? o.only : 0;
  const std::int64_t last = o.only >= 0 ? o.only + 1 : o.cases;
  const auto ways = static_cast<std::int64_t>(o.implementations.size());
  std::int64_t done = 0;
  for (std::int64_t i = first; i < last && minutes() < o.minutes; ++i, ++done) {
    Source source{o.seed, i, o.profiles * ways,
                  o.implementations[static_cast<std::size_t>(i % ways)]};
    Counts& of = counts[source.implementation];
    run_one(o, source, of);
    if (of.failed > 0 && o.first_failure) break;
  }
  std::int64_t failed = 0;
  fmt::print("seed {}: {} problems in {:.1f} min\n", o.seed, done, minutes());
  for (const auto& [name, of] : counts) {
    fmt::print("{:12} {:6} right, {:5} refused, {:4} failed, {:6} illegal ones\n", name,
               of.served - of.failed, of.refused, of.failed, of.illegal);
    failed += of.failed;
  }
  return failed == 0 && done > 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera::test::fuzz

int main(int argc, char** argv) {
  using namespace tessera::test;
  fuzz::Options options;
  CLI::App app("Runs problems that nobody chose on each implementation, against the oracle.");
  app.add_option("--seed", options.seed, "which problems; the same seed makes the same ones")
      ->capture_default_str();
  app.add_option("--cases", options.cases, "problems")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--only", options.only, "the number of a single problem to run again");
  app.add_option("--profiles", options.profiles,
                 "different sets of kernels for each OpenCL implementation")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--minutes", options.minutes, "begin no problem after so long");
  app.add_option("--implementations", options.implementations, "which, by turns")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::IsMember(fuzz::built_implementations()));
  app.add_flag("!--no-shrinking", options.shrinks, "leave failing problems as they are");
  app.add_flag("--first-failure", options.first_failure, "end there");
  CLI11_PARSE(app, argc, argv);
  if (!take_environment()) return 2;
  testing::InitGoogleTest();
  const int code = fuzz::run(options);
  close_shared_context();
  return code;
}
