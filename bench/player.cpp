// SPDX-License-Identifier: Apache-2.0
#include "bench/player.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstring>

#include "bench/measure.hpp"
#include "tessera/error.hpp"

namespace tessera::bench {
namespace {

/// The exit code of a process that did not become the program, as shells have it.
constexpr int not_started = 127;

}  // namespace

pid_t start_process(const std::string& program, const std::vector<std::string>& arguments, int in,
                    int out, int err) {
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const auto& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(not_started);  // it was killed before that
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  if (err >= 0) dup2(err, STDERR_FILENO);
  execv(program.c_str(), words.data());
  _exit(not_started);
}

Player::Player(std::string program, const std::vector<std::string>& arguments,
               double timeout_seconds)
    : program_(std::move(program)), timeout_(timeout_seconds) {
  // The other processes must not inherit these ends: they would keep this one's input open, and
  // this one would not end.
  int to_child[2], from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0) fail("failed", "no pipe could be made");
  if (pipe2(from_child, O_CLOEXEC) != 0) {
    close(to_child[0]);
    close(to_child[1]);
    fail("failed", "no pipe could be made");
  }
  pid_ = start_process(program_, arguments, to_child[0], from_child[1]);
  close(to_child[0]);
  close(from_child[1]);
  in_ = to_child[1];
  out_ = from_child[0];
}

Player::~Player() {
  close(in_);  // at the end of its input the process ends
  close(out_);
  const double deadline = now() + timeout_;
  while (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (now() >= deadline) kill(-pid_, SIGKILL);
    usleep(1000);
  }
}

void Player::wait_until_ready() {
  if (pid_ < 0) fail("failed", "no process could be started");
  const char* why = "it does not take turns; is it older than --compare?";
  if (line(why) != "ready") fail("failed", why);
}

double Player::call() {
  const char* why = "a call of it failed";
  // Where the process has ended, there is no answer either.
  [[maybe_unused]] const auto written = write(in_, "\n", 1);
  const std::string text = line(why);
  double seconds = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) fail("failed", why);
  return seconds;
}

void Player::fail(const char* status, const std::string& why) {
  failure_ = status;
  throw Error(ErrorCode::execution_failed, fmt::format("{}: {}", program_, why));
}

std::string Player::line(const char* why_none) {
  const double deadline = now() + timeout_;
  for (;;) {
    if (const auto end = read_.find('\n'); end != std::string::npos) {
      std::string text = read_.substr(0, end);
      read_.erase(0, end + 1);
      return text;
    }
    pollfd ready = {out_, POLLIN, 0};
    const double left = std::clamp(deadline - now(), 0.0, 1e6);
    if (poll(&ready, 1, static_cast<int>(std::ceil(1e3 * left))) == 0) {
      kill(-pid_, SIGKILL);
      fail("hung", fmt::format("no answer after {:g} s", timeout_));
    }
    char part[256];
    const auto count = read(out_, part, sizeof part);
    if (count > 0) {
      read_.append(part, static_cast<std::size_t>(count));
      continue;
    }
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == not_started) {
      fail("failed", "it could not be started");
    }
    if (!WIFSIGNALED(status)) fail("failed", why_none);
    fail("crashed", fmt::format("signal {}, {}", WTERMSIG(status), strsignal(WTERMSIG(status))));
  }
}

std::vector<std::vector<double>> take_turns(const Players& players, double seconds) {
  for (const auto& player : players) player->wait_until_ready();
  std::vector<std::vector<double>> times(players.size());
  const double start = now();
  for (std::size_t round = 0; round < 3 || now() - start < seconds; ++round) {
    for (std::size_t i = 0; i < players.size(); ++i) {
      const auto at = round % 2 == 0 ? i : players.size() - 1 - i;
      times[at].push_back(players[at]->call());
    }
  }
  return times;
}

double median_ratio(const std::vector<double>& times, const std::vector<double>& of_other) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < times.size(); ++i) ratios.push_back(times[i] / of_other[i]);
  return quantile(std::move(ratios), 0.5);
}

}  // namespace tessera::bench
