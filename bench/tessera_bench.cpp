// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <string_view>
#include <vector>

#include "bench/options.hpp"
#include "bench/reporter.hpp"
#include "bench/session.hpp"
#include "programs/cli.hpp"

namespace {

using namespace tessera;
using namespace tessera::bench;

/// Google Benchmark's flags, and what of them this program looks at itself.
struct BenchmarkFlags {
  std::vector<char*> arguments;
  bool has_format = false;
  bool lists = false;
  double min_seconds = 0.0;
};

/// Takes Google Benchmark's flags out of the command line.
BenchmarkFlags take_flags(int& argc, char** argv) {
  BenchmarkFlags flags;
  flags.arguments.push_back(argv[0]);
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    if (!text.starts_with("--benchmark_")) {
      argv[kept++] = argv[i];
      continue;
    }
    flags.arguments.push_back(argv[i]);
    if (text.starts_with("--benchmark_format")) flags.has_format = true;
    if (text.starts_with("--benchmark_list_tests") && !text.ends_with("=false")) flags.lists = true;
    constexpr std::string_view min_time = "--benchmark_min_time=";
    if (text.starts_with(min_time)) {
      std::from_chars(text.data() + min_time.size(), text.data() + text.size(), flags.min_seconds);
    }
  }
  argc = kept;
  return flags;
}

void run(const Options& options, BenchmarkFlags& flags, bool& failed) {
  check_options(options);
  int count = static_cast<int>(flags.arguments.size());
  benchmark::Initialize(&count, flags.arguments.data());
  if (count > 1) {
    programs::fail_call(fmt::format("'{}' is no flag of Google Benchmark", flags.arguments[1]));
  }
  Session session(options, flags.min_seconds);
  const auto rows = session.plan();
  std::string refusals;
  bool any = false;
  for (const auto& planned : rows) {
    any = any || planned.refusal.empty();
    if (!planned.refusal.empty()) refusals = planned.row.name() + ": " + planned.refusal;
  }
  if (!any) throw Error(ErrorCode::unsupported, "no row can run; " + refusals);
  for (const auto& planned : rows) {
    benchmark::RegisterBenchmark(
        planned.row.name().c_str(),
        [&session, planned](benchmark::State& state) { session.run(state, planned); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  for (const auto& [key, value] : session.description(!flags.lists)) {
    benchmark::AddCustomContext(key, value);
  }
  LineReporter lines;
  if (flags.has_format || flags.lists) {
    benchmark::RunSpecifiedBenchmarks();
  } else {
    benchmark::RunSpecifiedBenchmarks(&lines);
  }
  benchmark::Shutdown();
  failed = session.failed();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Speed of every pass against the measured peak of the machine, with its memory and its "
      "deviation from the oracle.",
      "tessera-bench");
  app.footer(
      "All flags of Google Benchmark work too: --benchmark_filter=REGEX, --benchmark_out=FILE,\n"
      "--benchmark_out_format=json|csv, --benchmark_format=console|json|csv, "
      "--benchmark_repetitions=N,\n--benchmark_min_time=SECONDS (of each row), "
      "--benchmark_list_tests.");
  Options options;
  add_options(app, options);
  BenchmarkFlags flags = take_flags(argc, argv);
  bool failed = false;
  const int code = programs::run_program(app, argc, argv, [&] {
    if (options.shapes.empty()) options.shapes = {{512, 2048, 32768}};
    run(options, flags, failed);
  });
  if (code == 0 && failed) {
    fmt::print(stderr, "tessera-bench: error: a row failed or gave wrong results\n");
    return programs::exit_failed;
  }
  return code;
}
