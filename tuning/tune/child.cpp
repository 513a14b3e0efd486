// SPDX-License-Identifier: Apache-2.0
#include "tuning/tune/child.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <regex>

#include "bench/folders.hpp"
#include "bench/measure.hpp"
#include "bench/player.hpp"
#include "tessera/error.hpp"

namespace tessera::tuning {
namespace {

/// What a process left.
struct Ended {
  int status = 0;  ///< of waitpid
  bool hung = false;
  std::array<std::string, 2> text{};  ///< what it wrote to stdout and to stderr
};

Ended run(const std::string& program, const std::vector<std::string>& arguments, double timeout) {
  std::array<int, 2> out{}, err{};
  if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0) {
    throw Error(ErrorCode::execution_failed, "no pipe could be made for tessera-bench");
  }
  const int none = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t pid = bench::start_process(program, arguments, none, out[1], err[1]);
  ::close(none);
  if (pid < 0) throw Error(ErrorCode::execution_failed, "no process could be started");
  ::close(out[1]);
  ::close(err[1]);
  Ended ended;
  std::array<pollfd, 2> ends = {pollfd{out[0], POLLIN, 0}, pollfd{err[0], POLLIN, 0}};
  const double deadline = bench::now() + timeout;
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const double left = deadline - bench::now();
    if (left <= 0.0) {
      ended.hung = true;
      break;
    }
    ::poll(ends.data(), ends.size(), static_cast<int>(std::ceil(1e3 * left)));
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].revents == 0) continue;
      char part[4096];
      const auto count = ::read(ends[i].fd, part, sizeof part);
      if (count > 0) ended.text[i].append(part, static_cast<std::size_t>(count));
      if (count <= 0) ends[i].fd = -1;
    }
  }
  // Its output has ended; the process itself may take a little longer.
  while (!ended.hung && ::waitpid(pid, &ended.status, WNOHANG) == 0) {
    ended.hung = bench::now() >= deadline;
    ::usleep(1000);
  }
  ::kill(-pid, SIGKILL);  // also what it may have left behind
  if (ended.hung) ::waitpid(pid, &ended.status, 0);
  ::close(out[0]);
  ::close(err[0]);
  return ended;
}

std::string last_line(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text.substr(text.rfind('\n') + 1);
}

/// The JSON of tessera-bench, which writes numbers that are none as they are in C.
nlohmann::json json_of(const std::string& text) {
  static const std::regex no_number(R"((:\s*)-?(NaN|nan|Infinity|inf))");
  return nlohmann::json::parse(std::regex_replace(text, no_number, "$1null"), nullptr, false);
}

/// Fills in the numbers. False: one of them is none.
bool take_numbers(const nlohmann::json& row, Record& record) {
  bool all = true;
  for (const auto& [column, counter] : {std::pair{"compile_seconds", "compile_seconds"},
                                        {"first_call_seconds", "first_call_seconds"},
                                        {"median_seconds", "median_seconds"},
                                        {"spread", "spread"},
                                        {"share_of_peak", "fraction_of_bracket"},
                                        {"tokens_per_second", "tokens_per_second"},
                                        {"max_abs_deviation", "max_abs_deviation"},
                                        {"mean_abs_deviation", "mean_abs_deviation"}}) {
    const auto found = row.find(counter);
    const double value = found != row.end() && found->is_number() ? found->get<double>() : NAN;
    // A custom kernel has no tokens.
    if (found == row.end() && column == std::string_view("tokens_per_second")) continue;
    all = all && std::isfinite(value) && value >= 0.0;
    if (std::isfinite(value)) record[column] = fmt::format("{:.6g}", value);
  }
  return all && record.number("median_seconds") > 0.0 && record.number("share_of_peak") > 0.0;
}

void set(Record& record, const char* status, const std::string& error) {
  record["status"] = status;
  record["error"] = bench::without_folders(error);
}

}  // namespace

void measure_in_child(const std::string& program, const std::vector<std::string>& arguments,
                      double timeout_seconds, Record& record) {
  const Ended ended = run(program, arguments, timeout_seconds);
  if (ended.hung) {
    return set(record, "hung", fmt::format("no answer after {:g} s", timeout_seconds));
  }
  const auto message = last_line(ended.text[1]);
  const auto json = json_of(ended.text[0]);
  const bool has_row = json.is_object() && json.contains("benchmarks") &&
                       json.contains("context") && json["benchmarks"].is_array() &&
                       json["benchmarks"].size() == 1;
  if (WIFSIGNALED(ended.status) && !has_row) {
    const int signal = WTERMSIG(ended.status);
    return set(record, "crashed", fmt::format("signal {}, {}", signal, strsignal(signal)));
  }
  if (!has_row) {
    const bool refused = WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == 2;
    return set(record, refused ? "refused" : "failed",
               message.empty() ? "it says nothing of its row" : message);
  }
  const auto& context = json["context"];
  const auto& row = json["benchmarks"].front();
  const auto text = [](const nlohmann::json& of, const char* name) {
    return of.contains(name) && of[name].is_string() ? of[name].get<std::string>() : std::string();
  };
  if (record["implementation"].starts_with("opencl")) record["driver"] = text(context, "driver");
  record["revision"] = text(context, "tessera_revision");
  record["date"] = text(context, "date").substr(0, 16);
  const auto status = text(row, "status");
  if (status != "ok" && status != "noisy") {
    return set(record, status.empty() ? "failed" : status.c_str(), text(row, "error"));
  }
  if (!take_numbers(row, record)) return set(record, "not_finite", "a figure is no number");
  if (!(row.value("deviation_in_tolerances", 2.0) <= 1.0)) {
    return set(record, "wrong", "a result leaves the tolerance");
  }
  if (!WIFEXITED(ended.status) || WEXITSTATUS(ended.status) != 0) {
    return set(record, "failed", "tessera-bench did not end well: " + message);
  }
  set(record, status.c_str(), "");
}

void turns_of_children(const std::string& program,
                       const std::vector<std::vector<std::string>>& arguments, double seconds,
                       double timeout_seconds, std::vector<Record>& records) {
  bench::Players players;
  try {
    for (const auto& each : arguments) {
      players.push_back(std::make_unique<bench::Player>(program, each, timeout_seconds));
    }
    const auto times = bench::take_turns(players, seconds);
    const double work =
        records.front().number("share_of_peak") * records.front().number("median_seconds");
    const auto date = fmt::format("{:%Y-%m-%dT%H:%M}", fmt::localtime(std::time(nullptr)));
    for (std::size_t i = 0; i < records.size(); ++i) {
      auto& record = records[i];
      const double median = bench::quantile(times[i], 0.5);
      const double tokens = record.number("tokens_per_second") * record.number("median_seconds");
      const double ratio = bench::median_ratio(times[i], times.front());
      const double share = work / bench::quantile(times.front(), 0.5) / ratio;
      const double quartiles = bench::quantile(times[i], 0.75) - bench::quantile(times[i], 0.25);
      for (const auto& [column, value] : {std::pair{"median_seconds", median},
                                          {"spread", quartiles / median},
                                          {"share_of_peak", share},
                                          {"tokens_per_second", tokens / median}}) {
        if (std::isfinite(value)) record[column] = fmt::format("{:.6g}", value);
      }
      record["date"] = date;
      set(record, "ok", "");
    }
  } catch (const Error& error) {
    const auto at = std::find_if(players.begin(), players.end(),
                                 [](const auto& each) { return !each->failure().empty(); });
    if (at == players.end()) throw;
    set(records[static_cast<std::size_t>(at - players.begin())], (*at)->failure().c_str(),
        error.what());
  }
}

}  // namespace tessera::tuning
