// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/operator.hpp"
#include "bench/options.hpp"
#include "programs/cli.hpp"
#include "tuning/lookup/lines.hpp"
#include "tuning/tune/derive.hpp"
#include "tuning/tune/search.hpp"

namespace {

using namespace tessera;
using namespace tessera::tuning;

struct CommandLine {
  bench::Options rows{};
  Wanted wanted{};
  SearchPlan plan{};
  std::vector<std::string> raw_files{};
  std::string table{};
};

/// "90", "90s", "10m", "2h".
double parse_seconds(const std::string& name, const std::string& text) {
  const auto unit = text.find_first_not_of("0123456789.");
  const auto number = number_of<double>(text.substr(0, unit));
  const std::string suffix = unit == std::string::npos ? "s" : text.substr(unit);
  const double factor = suffix == "s" ? 1.0 : suffix == "m" ? 60.0 : suffix == "h" ? 3600.0 : 0.0;
  if (!number || !(*number * factor > 0.0)) {
    throw CLI::ValidationError(
        name, fmt::format("'{}' is no time above 0; give seconds, or 90s, 10m, 2h", text));
  }
  return *number * factor;
}

void add_seconds(CLI::App& app, const std::string& name, double& target,
                 const std::string& description) {
  app.add_option_function<std::string>(
         name, [name, &target](const std::string& text) { target = parse_seconds(name, text); },
         description)
      ->type_name("TIME");
}

void add_count(CLI::App& app, const std::string& name, int& target, int most,
               const std::string& description) {
  programs::add_integer(
      app, name,
      [name, &target, most](std::int64_t value) {
        if (value < 1 || value > most) {
          programs::fail_call(fmt::format("{} {} is outside 1 to {}", name, value, most));
        }
        target = static_cast<int>(value);
      },
      description);
}

void add_options(CLI::App& app, CommandLine& line) {
  // Those of tessera-bench that say which rows there are, then what is the tuner's own. Here a
  // single measurement is short: there are many.
  line.rows.samples = 5;
  line.rows.max_seconds = 0.5;
  bench::add_row_options(app, line.rows);
  app.get_option("--samples")->description("timed samples of each measurement at least (5)");
  app.get_option("--max-seconds")->description("time for the samples of a measurement (0.5)");
  app.add_option_function<std::string>(
         "--shapes", [&](const std::string& text) { line.rows.shapes = bench::parse_shapes(text); },
         "shapes, beside those of --regimes; as tessera-bench has them")
      ->type_name("BxHxV|LETTERS[,...]|FILE");
  programs::add_list(app, "--regimes", line.wanted.regimes,
                     fmt::format("models, by name: {}", fmt::join(regime_names(), ", ")));
  app.add_option_function<std::string>(
         "--tokens",
         [&](const std::string& text) {
           line.wanted.tokens = programs::parse_integers("--tokens", text, ',');
           for (const auto b : line.wanted.tokens) {
             if (b < 1) programs::fail_call(fmt::format("--tokens {} is below 1", b));
           }
         },
         "tokens of each of the regimes: B, or where an operator has an S that (512)")
      ->type_name("N[,N...]");
  programs::add_list(app, "--buckets", line.wanted.buckets,
                     "only shapes that these buckets of tuning/tables/buckets.csv answer for");
  auto& plan = line.plan;
  programs::add_choice(
      app, "--search", plan.strategy,
      std::vector<std::pair<std::string, Strategy>>{
          {"grid", Strategy::grid}, {"random", Strategy::random}, {"halving", Strategy::halving}},
      "which candidates are tried, and how often, before the best take turns with "
      "the heuristic (halving)");
  programs::add_list(app, "--vary", plan.vary, "names of blocks and knobs that change (all)");
  add_seconds(app, "--budget", plan.budget_seconds, "time for all of it (10m)");
  add_seconds(app, "--timeout", plan.timeout_seconds,
              "after this a measurement without an answer is killed (120s)");
  add_count(app, "--rounds", plan.rounds, 1000, "rounds of these turns; derive wants 6 (9)");
  add_count(app, "--finalists", plan.finalists, 100, "candidates that take turns (2)");
  programs::add_integer(
      app, "--seed", [&plan](std::int64_t seed) { plan.seed = static_cast<std::uint64_t>(seed); },
      "of what is done by lot (1)");
  app.add_option("--out", plan.out, "the file of raw results")->type_name("FILE");
  app.add_flag("--resume", plan.resume,
               "go on with the file of --out: what it has is not repeated");
  app.add_flag("--dry-run", plan.dry_run,
               "print the candidates' number and what rules exclude; measure nothing");
  auto* custom =
      app.add_option("--custom", line.rows.custom,
                     "rows of a kernel of one's own, from a JSON file that lists candidates "
                     "(docs/custom_kernels.md), instead of the library's operators")
          ->type_name("FILE");
  for (const char* name : {"--operators", "--passes", "--implementations", "--dtypes", "--w-layout",
                           "--shapes", "--regimes", "--tokens", "--buckets", "--vary"}) {
    custom->excludes(app.get_option(name));
  }
  app.add_option("--bench", plan.bench, "the program that measures (tessera-bench beside this one)")
      ->type_name("PROGRAM");
}

/// From now on calls here and in the children have the implementation's own choice, whatever tables
/// say.
void leave_tables_out() {
  ::setenv("TESSERA_TUNED_FILE", "", 1);
  ::setenv("TESSERA_MEASURED_ROWS", "0", 1);
}

/// Throws where a name of --vary is none of what can be varied in any of the problems.
void check_vary(Context& context, const std::vector<Problem>& problems,
                const std::vector<std::string>& vary) {
  std::vector<std::string> known;
  for (const auto& problem : problems) {
    if (!problem.refusal.empty()) continue;
    for (const auto& name : varied_names(context, problem.row)) {
      if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
    }
  }
  for (const auto& name : vary) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      programs::fail_choice("--vary", name, known);
    }
  }
}

void run(CommandLine& line) {
  auto& plan = line.plan;
  bench::check_options(line.rows);
  if (line.wanted.tokens.empty()) line.wanted.tokens = {512};
  const bool is_custom = !line.rows.custom.empty();
  if (!is_custom && line.wanted.regimes.empty() && line.rows.shapes.empty()) {
    programs::fail_call(fmt::format("give --regimes, of {}, or --shapes BxHxV, or --custom FILE",
                                    fmt::join(regime_names(), ", ")));
  }
  if (plan.out.empty() && !plan.dry_run) {
    programs::fail_call("give --out FILE for the raw results, or --dry-run");
  }
  if (plan.bench.empty()) {
    const auto self = std::filesystem::read_symlink("/proc/self/exe");
    plan.bench = (self.parent_path() / "tessera-bench").string();
  }
  if (!plan.dry_run && ::access(plan.bench.c_str(), X_OK) != 0) {
    programs::fail_call(
        fmt::format("--bench: '{}' is no program; name tessera-bench, or build it", plan.bench));
  }
  leave_tables_out();
  // As the children have it.
  ContextOptions options{.device = line.rows.device};
  options.threads = static_cast<int>(line.rows.threads.value_or(0));
  options.warning_handler = [](const std::string&) {};  // a row says itself what ran
  const auto& names = line.rows.implementations;
  options.host_only = options.device.empty() &&
                      std::none_of(names.begin(), names.end(),
                                   [](const auto& name) { return name.starts_with("opencl"); });
  Context context(options);
  const auto problems = is_custom ? make_custom_problems(context, line.rows.custom)
                                  : make_problems(context, line.rows, line.wanted);
  if (problems.empty()) {
    programs::fail_call(
        "these options leave no problem: none of the operators has such a pass, or "
        "implementation, or no shape is in one of --buckets");
  }
  if (!is_custom) check_vary(context, problems, plan.vary);
  tune(context, line.rows, problems, plan);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Looks for faster block sizes and knobs than an implementation chooses, and makes tables of "
      "them (docs/tuning.md).",
      "tessera-tune");
  CommandLine line;
  add_options(app, line);
  auto* derive = app.add_subcommand("derive", "makes a table of raw results");
  derive->add_option("RAW", line.raw_files, "files of raw results")->required();
  derive
      ->add_option("--table", line.table,
                   "the table: rows of other devices stay in it; custom kernels need none")
      ->type_name("FILE");
  return programs::run_program(app, argc, argv, [&] {
    derive->parsed() ? derive_table(line.raw_files, line.table) : run(line);
  });
}
