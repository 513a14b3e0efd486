// SPDX-License-Identifier: Apache-2.0
#include "bench/turns.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "bench/measure.hpp"
#include "bench/row_measurement.hpp"
#include "programs/cli.hpp"

extern char** environ;

namespace tessera::bench {
namespace {

constexpr const char* ready = "ready";

/// One of the two processes that take turns.
class Player {
 public:
  Player(std::string program, const std::vector<std::string>& arguments)
      : program_(std::move(program)) {
    // The other process of the pair must not inherit these ends: it would keep this one's input
    // open, and this one would not end.
    int to_child[2], from_child[2];
    if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) {
      fail("no pipe could be made");
    }
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, to_child[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, from_child[1], STDOUT_FILENO);
    std::vector<char*> words = {program_.data()};
    std::vector<std::string> copies = arguments;
    for (auto& word : copies) words.push_back(word.data());
    words.push_back(nullptr);
    const int error = posix_spawn(&pid_, program_.c_str(), &files, nullptr, words.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    close(to_child[0]);
    close(from_child[1]);
    in_ = fdopen(to_child[1], "w");
    out_ = fdopen(from_child[0], "r");
    if (error != 0) pid_ = 0;  // wait_until_ready reports it
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;
  ~Player() {
    std::fclose(in_);  // at the end of its input the process ends
    std::fclose(out_);
    if (pid_ != 0) waitpid(pid_, nullptr, 0);
  }

  void wait_until_ready() {
    if (pid_ == 0) fail("it could not be started");
    if (line() != ready) fail("it does not take turns; is it older than --compare?");
  }
  /// Seconds of one call.
  double call() {
    std::fputs("\n", in_);
    std::fflush(in_);
    const std::string text = line();
    double seconds = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error != std::errc() || end != text.data() + text.size()) fail("a call of it failed");
    return seconds;
  }

 private:
  [[noreturn]] void fail(const char* why) const {
    throw Error(ErrorCode::execution_failed, fmt::format("--compare: {}: {}", program_, why));
  }
  std::string line() {
    std::string text;
    for (int c = std::fgetc(out_); c != EOF && c != '\n'; c = std::fgetc(out_)) {
      text += static_cast<char>(c);
    }
    return text;
  }

  std::string program_;
  pid_t pid_ = 0;
  std::FILE* in_ = nullptr;
  std::FILE* out_ = nullptr;
};

/// What one pair of processes measures: the median time of a call of each, and the median over the
/// rounds of the ratio of both times.
struct Pair {
  double seconds, seconds_of_other, ratio;
};

/// Takes turns for so many seconds, and for three rounds at least.
Pair take_turns(Player& mine, Player& others, double seconds) {
  mine.wait_until_ready();
  others.wait_until_ready();
  std::vector<double> of_mine, of_others, ratios;
  const double start = now();
  while (ratios.size() < 3 || now() - start < seconds) {
    // The process that calls first calls second in the next round.
    const bool first = ratios.size() % 2 == 0;
    const double a = first ? mine.call() : 0.0;
    of_others.push_back(others.call());
    of_mine.push_back(first ? a : mine.call());
    ratios.push_back(of_mine.back() / of_others.back());
  }
  return {quantile(of_mine, 0.5), quantile(of_others, 0.5), quantile(ratios, 0.5)};
}

}  // namespace

void compare_with(const std::string& other, const std::vector<std::string>& arguments,
                  const std::vector<Session::Planned>& rows, const Options& options) {
  std::signal(SIGPIPE, SIG_IGN);  // instead, call() notices that a process has ended
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  fmt::print("{:<72} {:>10} {:>10} {:>7} {:>16} {:>6}\n", "row", "ms", "other's", "ratio", "95%",
             "pairs");
  for (const auto& planned : rows) {
    if (!planned.refusal.empty()) continue;
    auto words = arguments;
    words.insert(words.end(), {"--turns", planned.row.name()});
    // Where the memory of a process happens to lie changes its times by some percent in all rounds.
    // So the interval is that of one ratio per pair of processes.
    std::vector<double> seconds, seconds_of_other, ratios;
    for (int pair = 0; pair < options.samples; ++pair) {
      Player mine(self, words), others(other, words);
      const Pair took = take_turns(mine, others, options.max_seconds / options.samples);
      seconds.push_back(took.seconds);
      seconds_of_other.push_back(took.seconds_of_other);
      ratios.push_back(took.ratio);
    }
    const auto ratio = ratio_of(ratios);
    fmt::print("{:<72} {:>10.3f} {:>10.3f} {:>7.3f} {:>7.3f} {:>8.3f} {:>6}\n", planned.row.name(),
               1e3 * quantile(seconds, 0.5), 1e3 * quantile(seconds_of_other, 0.5), ratio.median,
               ratio.low, ratio.high, ratios.size());
    std::fflush(stdout);
  }
}

void answer_turns(Session& session, const std::string& name,
                  const std::vector<Session::Planned>& rows) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const auto& planned) { return planned.row.name() == name; });
  if (found == rows.end()) programs::fail_call(fmt::format("--turns: there is no row {}", name));
  const auto calls = session.prepare(found->row);
  std::cout << ready << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << fmt::format("{:.9g}", calls->timed_call()) << std::endl;
  }
}

}  // namespace tessera::bench
