// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "bench/latency/first_call.hpp"
#include "bench/latency/recorder.hpp"
#include "programs/cli.hpp"
#include "programs/output_set.hpp"

/// tessera-latency: what a tiny steady call costs beyond the bare driver chain of the same
/// commands, and what a first call costs.
namespace tessera::bench::latency {
namespace {

using nlohmann::json;

struct Arguments {
  std::string device{};
  std::string cache_folder{};
  std::vector<std::string> operators{"linear", "softmax", "custom"};
  std::vector<std::string> passes{"forward", "value_and_grad"};
  std::vector<std::string> memory{"host", "device"};
  std::vector<std::int64_t> b{1, 4};
  std::int64_t h = 64, v = 256;
  int repeat = 300;
  int rounds = 9;
  int warm = 5;
  bool first = false;
  bool child = false;
  bool loop = false;
  double limit = 15.0;
  std::string json_file{};
};

std::vector<Case> cases_of(const Arguments& a) {
  std::vector<Case> cases;
  for (const auto& op : a.operators) {
    for (const auto& pass : a.passes) {
      for (const auto& memory : a.memory) {
        const bool gradients = pass == "value_and_grad";
        if (op == "custom" && gradients) continue;
        for (const auto b : a.b) {
          cases.push_back({op, gradients, memory == "device", b, a.h, a.v});
        }
      }
    }
  }
  return cases;
}

double quantile(std::vector<double> values, double q) {
  const auto at = static_cast<std::size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

json spread(const std::vector<double>& values) {
  return {{"median", quantile(values, 0.5)},
          {"p10", quantile(values, 0.1)},
          {"p90", quantile(values, 0.9)}};
}

/// The chain must do what the call does: the same words where only NaN was before.
void check_replay(Problem& problem, Chain& chain, cl_command_queue queue) {
  problem.poison();
  problem.call();
  const auto wanted = problem.results();
  problem.poison();
  chain.replay(queue);
  const auto got = problem.results();
  for (const float value : wanted) {
    if (std::isnan(value)) throw std::runtime_error("the call left an output unwritten");
  }
  if (std::memcmp(wanted.data(), got.data(), wanted.size() * sizeof(float)) != 0) {
    throw std::runtime_error("the replayed commands give other results than the call");
  }
}

/// Microseconds.
struct Round {
  std::vector<double> calls, bare, over;
};

Round measure_round(Problem& problem, Chain& chain, cl_command_queue queue, int repeat) {
  using Clock = std::chrono::steady_clock;
  const auto microseconds = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::micro>(to - from).count();
  };
  Round round;
  for (int i = 0; i < repeat; ++i) {
    // Both orders in turn, so that neither always finds what the other left in the caches.
    double call = 0.0;
    double replay = 0.0;
    for (int half = 0; half < 2; ++half) {
      const auto start = Clock::now();
      if ((i + half) % 2 == 0) {
        problem.call();
        call = microseconds(start, Clock::now());
      } else {
        chain.replay(queue);
        replay = microseconds(start, Clock::now());
      }
    }
    round.calls.push_back(call);
    round.bare.push_back(replay);
    round.over.push_back(call - replay);
  }
  return round;
}

json measure(const Arguments& a, const Case& wanted) {
  // A context of its own, whose kernels have had every argument set while somebody looked.
  Recorder::follow_arguments(true);
  Context context({.device = a.device});
  Problem problem(context, wanted);
  for (int i = 0; i < 3; ++i) problem.call();
  Recorder::start();
  problem.call();
  Chain chain = Recorder::stop();
  Recorder::follow_arguments(false);
  const auto queue = context.native_queue();
  check_replay(problem, chain, queue);

  for (int i = 0; i < a.repeat / 10 + 1; ++i) {
    problem.call();
    chain.replay(queue);
  }
  // The quietest of several rounds: the one in which the bare commands were fastest.
  Round best;
  for (int round = 0; round < a.rounds; ++round) {
    Round now = measure_round(problem, chain, queue, a.repeat);
    if (round == 0 || quantile(now.bare, 0.5) < quantile(best.bare, 0.5)) best = std::move(now);
  }
  json row{{"case", wanted.name()},
           {"h", wanted.h},
           {"v", wanted.v},
           {"implementation", problem.describe().implementation},
           {"kernels", chain.kernels()},
           {"commands", chain.commands()},
           {"chain", chain.text()},
           {"driver_calls", chain.driver_calls()},
           {"repeat", a.repeat},
           {"rounds", a.rounds},
           {"call_microseconds", spread(best.calls)},
           {"bare_microseconds", spread(best.bare)},
           {"over_microseconds", spread(best.over)}};
  return row;
}

void print(const json& row, double limit) {
  const auto at = [&](const char* what, const char* which) {
    return row[what][which].get<double>();
  };
  const double over = at("over_microseconds", "median");
  fmt::print("{:<34}{:>4}{:>5}{:>10.1f}{:>9.1f}{:>10.1f}{:>9.1f}{:>8.1f}  {}\n",
             row["case"].get<std::string>(), row["kernels"].get<int>(), row["commands"].get<int>(),
             at("bare_microseconds", "median"), at("bare_microseconds", "p90"),
             at("call_microseconds", "median"), at("call_microseconds", "p90"), over,
             over <= limit ? "" : "above the limit");
  std::fflush(stdout);
}

void run_steady(const Arguments& a, json& report) {
  fmt::print("microseconds; `over` is the median of the differences of neighbours, limit {}\n",
             a.limit);
  fmt::print("{:<34}{:>4}{:>5}{:>10}{:>9}{:>10}{:>9}{:>8}\n", "case", "krn", "cmds", "bare", "p90",
             "call", "p90", "over");
  for (const auto& wanted : cases_of(a)) {
    report["steady"].push_back(measure(a, wanted));
    print(report["steady"].back(), a.limit);
  }
  for (const auto& row : report["steady"]) {
    fmt::print("{}: {}\n", row["case"].get<std::string>(), row["chain"].get<std::string>());
  }
}

void run_first(const Arguments& a, json& report) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
  fmt::print(
      "seconds of a new process; cold: empty POCL_CACHE_DIR, warm: what that run left there; "
      "filling, kept: the same with a cache_folder\n");
  fmt::print("{:<34}{:>10}{:>11}{:>11}{:>10}{:>10}{:>13}\n", "case", "context", "cold call",
             "warm call", "filling", "kept", "second call");
  for (const auto& wanted : cases_of(a)) {
    std::string child =
        fmt::format("'{}' --child --operators {} --passes {} --memory {} --b {} --h {} --v {}",
                    self, wanted.op, wanted.gradients ? "value_and_grad" : "forward",
                    wanted.device ? "device" : "host", wanted.b, wanted.h, wanted.v);
    if (!a.device.empty()) child += fmt::format(" --device '{}'", a.device);
    json row = first_calls(child, a.warm);
    row["case"] = wanted.name();
    const auto median = [&](const char* runs, const char* what) {
      std::vector<double> values;
      for (const auto& run : row[runs]) values.push_back(run[what].get<double>());
      return quantile(values, 0.5);
    };
    constexpr const char* first = "first_call_seconds";
    fmt::print("{:<34}{:>10.3f}{:>11.3f}{:>11.4f}{:>10.3f}{:>10.4f}{:>13.6f}\n", wanted.name(),
               median("warm", "context_seconds"), row["cold"][first].get<double>(),
               median("warm", first), row["filling"][first].get<double>(), median("kept", first),
               median("warm", "second_call_seconds"));
    std::fflush(stdout);
    report["first"].push_back(std::move(row));
  }
}

void run(const Arguments& a) {
  const auto all = cases_of(a);
  if (a.child) {
    fmt::print("{}\n", first_call(a.device, a.cache_folder, all.front()).dump());
    return;
  }
  if (a.loop) {  // for profilers: nothing but calls
    Context context({.device = a.device});
    Problem problem(context, all.front());
    for (int i = 0; i < a.repeat; ++i) problem.call();
    return;
  }
  std::optional<programs::OutputFile> file;
  if (!a.json_file.empty()) file.emplace(a.json_file, "--json");
  json report;
  {
    Context context({.device = a.device});
    report["device"] = context.device_info().name;
    report["driver"] = context.device_info().driver;
  }
  report["revision"] = revision();
  fmt::print("{}, {}\n", report["device"].get<std::string>(), report["driver"].get<std::string>());
  if (a.first) {
    run_first(a, report);
  } else {
    run_steady(a, report);
  }
  if (file) file->write(report.dump(1) + '\n');
}

}  // namespace
}  // namespace tessera::bench::latency

int main(int argc, char** argv) {
  using namespace tessera;
  bench::latency::Arguments a;
  CLI::App app(
      "Times tiny calls against the bare driver commands that they enqueue, and first calls.",
      "tessera-latency");
  app.add_option("--device", a.device, "text in the platform's or device's name, or p:d");
  app.add_option("--cache-folder", a.cache_folder, "of --child: ContextOptions::cache_folder");
  app.add_option("--operators", a.operators, "linear, softmax, custom")
      ->delimiter(',')
      ->check(CLI::IsMember({"linear", "softmax", "custom"}));
  app.add_option("--passes", a.passes, "forward, value_and_grad")
      ->delimiter(',')
      ->check(CLI::IsMember({"forward", "value_and_grad"}));
  app.add_option("--memory", a.memory, "where the views are: host, device")
      ->delimiter(',')
      ->check(CLI::IsMember({"host", "device"}));
  app.add_option("--b", a.b, "tokens")->delimiter(',')->check(CLI::PositiveNumber);
  app.add_option("--h", a.h, "hidden size")->check(CLI::PositiveNumber);
  app.add_option("--v", a.v, "vocabulary")->check(CLI::PositiveNumber);
  app.add_option("--repeat", a.repeat, "calls of each round")->check(CLI::PositiveNumber);
  app.add_option("--rounds", a.rounds, "rounds of each case; the quietest counts")
      ->check(CLI::PositiveNumber);
  app.add_option("--limit", a.limit, "microseconds above the bare commands to flag");
  app.add_option("--json", a.json_file, "write every figure to this file");
  app.add_flag("--first-call", a.first, "time first calls, each in a new process");
  app.add_option("--warm", a.warm, "processes with a warm cache for each case of --first-call")
      ->check(CLI::PositiveNumber);
  app.add_flag("--child", a.child, "one first call in this process, as JSON");
  app.add_flag("--loop", a.loop, "only calls, of the first case, for a profiler");
  return programs::run_program(app, argc, argv, [&] { bench::latency::run(a); });
}
