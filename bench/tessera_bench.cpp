// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/custom.hpp"
#include "bench/decompose.hpp"
#include "bench/folders.hpp"
#include "bench/options.hpp"
#include "bench/reporter.hpp"
#include "bench/row_measurement.hpp"
#include "bench/session.hpp"
#include "bench/turns.hpp"
#include "programs/cli.hpp"
#include "programs/dump.hpp"
#include "programs/output_set.hpp"

namespace {

using namespace tessera;
using namespace tessera::bench;

/// Google Benchmark's flags, and those of them that this program answers itself.
struct BenchmarkFlags {
  std::vector<char*> arguments;
  std::string filter, format, out, out_format = "json";
  std::string min_time = "0";
  std::string lists = "false";
  std::vector<std::string> rows;  ///< the others but for --compare: which rows, and how they run
};

/// Takes Google Benchmark's flags out of the command line.
BenchmarkFlags take_flags(int& argc, char** argv) {
  BenchmarkFlags flags;
  flags.arguments.push_back(last_part(argv[0]));
  int remaining = 1;
  bool skips = false;  // the value of --compare
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (!text.starts_with("--benchmark_")) {
      argv[remaining++] = argv[i];
      if (text == "--compare") {
        skips = true;
      } else if (!std::exchange(skips, false) && !text.starts_with("--compare=")) {
        flags.rows.push_back(text);
      }
      continue;
    }
    const auto value_of = [&](const char* name, std::string& target) {
      const std::string flag = std::string("--benchmark_") + name;
      if (text.starts_with(flag + "=")) {
        target = text.substr(flag.size() + 1);
      } else if (text == flag) {
        target = "true";
      } else {
        return false;
      }
      return true;
    };
    // Names are matched and listed without what Google Benchmark appends to them.
    if (value_of("filter", flags.filter) || value_of("list_tests", flags.lists)) continue;
    // It answers a value that it does not understand with its whole usage.
    if (value_of("format", flags.format) || value_of("min_time", flags.min_time)) continue;
    if (value_of("out", flags.out)) continue;
    value_of("out_format", flags.out_format);
    flags.arguments.push_back(argv[i]);
  }
  argc = remaining;
  return flags;
}

std::string name_of(const Session::Planned& planned) { return planned.row.name(); }
std::string name_of(const CustomRow& row) { return row.name; }

/// Keeps the rows that the filter matches; "-REGEX" keeps the others. `rows` is not empty;
/// there is an error where none of them is left.
template <class Rows>
void filter_rows(const std::string& filter, Rows& rows) {
  if (filter.empty() || filter == "all") return;
  const bool negative = filter.front() == '-';
  try {
    const std::regex wanted(negative ? filter.substr(1) : filter, std::regex::extended);
    std::erase_if(
        rows, [&](const auto& row) { return std::regex_search(name_of(row), wanted) == negative; });
  } catch (const std::regex_error& error) {
    programs::fail_call(
        fmt::format("--benchmark_filter: '{}' is no regular expression: {}", filter, error.what()));
  }
  if (!rows.empty()) return;
  programs::fail_call(fmt::format("--benchmark_filter: no row matches '{}'", filter));
}

/// The row of this name, for --turns.
template <class Rows>
const auto& find_row(const std::string& name, const Rows& rows) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return name_of(row) == name; });
  if (found == rows.end()) programs::fail_call(fmt::format("--turns: there is no row {}", name));
  return *found;
}

template <class Rows>
void list(const Rows& rows) {
  for (const auto& row : rows) fmt::print("{}\n", name_of(row));
}

template <class Rows>
void add_rows(Session& session, const Rows& rows) {
  for (const auto& row : rows) {
    benchmark::RegisterBenchmark(
        name_of(row).c_str(), [&session, row](benchmark::State& state) { session.run(state, row); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

/// Adds the rows that can run. False: there is nothing more to do.
bool plan_rows(Session& session, const Options& options, const BenchmarkFlags& flags) {
  const bool lists = flags.lists != "false";
  if (!options.custom.empty()) {
    auto rows = read_custom_rows(options.custom);
    if (!options.candidate.empty()) rows = {find_candidate(rows, options.candidate)};
    filter_rows(flags.filter, rows);
    if (!options.turns.empty()) {
      answer_turns(session.prepare(find_row(options.turns, rows)));
      return false;
    }
    lists ? list(rows) : add_rows(session, rows);
    return !lists;
  }
  auto rows = session.plan();
  if (rows.empty()) {
    programs::fail_call("--passes: none of the operators has one of these passes");
  }
  filter_rows(flags.filter, rows);
  if (!options.turns.empty()) {
    const auto calls = session.prepare(find_row(options.turns, rows).row);
    answer_turns([&] { return calls->timed_call(); });
    return false;
  }
  if (lists) {
    list(rows);
    return false;
  }
  std::string refusals;
  bool any = false;
  for (const auto& planned : rows) {
    any = any || planned.refusal.empty();
    if (!planned.refusal.empty()) refusals = planned.row.name() + ": " + planned.refusal;
  }
  if (!any) throw Error(ErrorCode::unsupported, "no row can run; " + refusals);
  if (!options.compare.empty()) {
    compare_with(options.compare, flags.rows, rows, options);
    return false;
  }
  add_rows(session, rows);
  return true;
}

double seconds_of(const std::string& text) {
  double seconds = 0.0;
  const auto end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  if (error != std::errc() || (stop != end && std::string_view(stop) != "s")) {
    programs::fail_call(fmt::format("--benchmark_min_time: '{}' is no number of seconds", text));
  }
  return seconds;
}

void run(const Options& options, BenchmarkFlags& flags, bool& failed) {
  check_options(options);
  if (!options.compare_dumps.empty()) {
    fmt::print("{}", programs::compare_dumps(options.compare_dumps[0], options.compare_dumps[1]));
    return;
  }
  const auto display = make_reporter(flags.format);
  // Minutes of measuring must not end at a folder that does not exist, nor before half a file.
  std::optional<programs::OutputFile> out;
  if (!flags.out.empty()) out.emplace(flags.out, "--benchmark_out");
  if (!options.profile.empty()) {
    if (!flags.format.empty()) {
      programs::fail_call(
          "--profile prints tables, which are no part of --benchmark_format; leave that out, and "
          "give --benchmark_out=FILE for the rows");
    }
    const programs::OutputFile can_be_written(options.profile, "--profile");
  }
  std::optional<programs::OutputFile> rows;
  if (!options.dump.empty()) {
    if (flags.out_format != "json") {
      programs::fail_call("--dump keeps the rows as JSON; leave --benchmark_out_format out");
    }
    std::error_code ignored;  // the file says it
    std::filesystem::create_directories(options.dump, ignored);
    rows.emplace(options.dump + "/rows.json", "--dump");
  }
  std::ostringstream text;
  const auto file = !out && !rows ? nullptr : make_reporter(flags.out_format, &text);
  // Files are written here, once and whole; Google Benchmark must have the name of one.
  static char nowhere[] = "--benchmark_out=/dev/null";
  if (file) flags.arguments.push_back(nowhere);
  int count = static_cast<int>(flags.arguments.size());
  benchmark::Initialize(&count, flags.arguments.data());
  if (count > 1) {
    programs::fail_call(fmt::format("'{}' is no flag of Google Benchmark", flags.arguments[1]));
  }
  Session session(options, seconds_of(flags.min_time));
  if (options.decompose) {
    auto calls = session.plan();
    filter_rows(flags.filter, calls);
    const std::string parts = decompose(session, calls, options);
    if (out) out->write(parts);
    return;
  }
  if (!plan_rows(session, options, flags)) return;
  for (const auto& [key, value] : session.description()) {
    benchmark::AddCustomContext(key, value);
  }
  benchmark::RunSpecifiedBenchmarks(display.get(), file.get());
  benchmark::Shutdown();
  if (out) out->write(text.str());
  if (rows) {
    programs::summarise_dump(options.dump, "--dump");
    rows->write(text.str());
  }
  fmt::print("{}", session.profiles());
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
    if (options.shapes.empty()) options.shapes = default_shapes();
    run(options, flags, failed);
  });
  if (code == 0 && failed) {
    fmt::print(stderr, "tessera-bench: error: a row failed or gave wrong results\n");
    return programs::exit_failed;
  }
  return code;
}
