// SPDX-License-Identifier: Apache-2.0
#include "tests/support/compare.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace tessera::test {
namespace {

struct Tally {
  std::int64_t cases = 0, refused = 0, comparisons = 0;
  double worst_fraction = 0.0, worst_absolute = 0.0;
  std::string worst_what{};
};

std::mutex mutex;
std::map<SummaryKey, Tally>& tallies() {
  static std::map<SummaryKey, Tally> map;
  return map;
}

thread_local std::string current_case;
// In plain memory, for the signal handler.
char last_case[512] = "\ncrashed outside any case\n";

void on_crash(int signal) {
  const auto written = ::write(STDERR_FILENO, last_case, std::strlen(last_case));
  static_cast<void>(written);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

Summary& Summary::instance() {
  static Summary summary;
  return summary;
}

void Summary::add_case(const SummaryKey& key, bool refused) {
  const std::lock_guard lock(mutex);
  auto& tally = tallies()[key];
  ++(refused ? tally.refused : tally.cases);
}

void Summary::add(const SummaryKey& key, const std::string& what, double deviation,
                  double tolerance) {
  const std::lock_guard lock(mutex);
  auto& tally = tallies()[key];
  ++tally.comparisons;
  if (!std::isfinite(deviation)) return;
  tally.worst_absolute = std::max(tally.worst_absolute, deviation);
  const double fraction = tolerance > 0.0 ? deviation / tolerance : deviation > 0.0 ? 1e9 : 0.0;
  if (fraction > tally.worst_fraction) {
    tally.worst_fraction = fraction;
    tally.worst_what = what + " in " + current_case;
  }
}

void Summary::set_case(const std::string& name) {
  current_case = name;
  const std::lock_guard lock(mutex);
  std::snprintf(last_case, sizeof last_case, "\ncrashed in %s\n", name.c_str());
}

void Summary::write() const {
  const char* path = std::getenv("TESSERA_TEST_SUMMARY");
  const std::lock_guard lock(mutex);
  if (path == nullptr || *path == '\0' || tallies().empty()) return;
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file < 0) return;
  std::string text;
  if (lseek(file, 0, SEEK_END) == 0) {
    text =
        "operation,implementation,pass,types,layout,cases,refused,comparisons,worst_fraction,"
        "worst_absolute,worst\n";
  }
  for (const auto& [key, tally] : tallies()) {
    text += fmt::format("{},{},{},{},{},{},{},{},{:.3g},{:.3g},\"{}\"\n", key.operation,
                        key.implementation, key.pass, key.types, key.layout, tally.cases,
                        tally.refused, tally.comparisons, tally.worst_fraction,
                        tally.worst_absolute, tally.worst_what);
  }
  // One write, so that lines of processes that run at once do not mix.
  if (::write(file, text.data(), text.size()) < 0) std::perror("TESSERA_TEST_SUMMARY");
  close(file);
}

void report_crashes() {
  std::signal(SIGSEGV, on_crash);
  std::signal(SIGBUS, on_crash);
}

Comparison::~Comparison() {
  if (wrong_ == 0) return;
  ADD_FAILURE() << key_.implementation << " " << key_.operation << " " << key_.pass << ": " << what_
                << ": " << wrong_ << " wrong:" << text_;
}

bool Comparison::same_class(double actual, double expected) const {
  if (std::isnan(expected)) return std::isnan(actual);
  if (std::isinf(expected)) return actual == expected;
  return std::isfinite(actual);
}

void Comparison::number(std::int64_t index, double actual, double expected, double tolerance) {
  if (!same_class(actual, expected)) {
    Summary::instance().add(key_, what_, 1e30, tolerance);
    wrong(index, fmt::format("{} instead of {}", actual, expected));
    return;
  }
  if (!std::isfinite(expected)) return;  // the same infinity, or NaN: no tolerance is asked
  const double deviation = std::abs(actual - expected);
  Summary::instance().add(key_, what_, deviation, tolerance);
  if (!(deviation <= tolerance)) {
    wrong(index, fmt::format("{:.9g} instead of {:.9g}, off by {:.3g} where {:.3g} is allowed",
                             actual, expected, deviation, tolerance));
  }
}

void Comparison::norm(std::int64_t index, std::int64_t n,
                      const std::function<double(std::int64_t)>& actual,
                      const std::function<double(std::int64_t)>& expected, double tolerance) {
  double squares = 0.0;
  double worst = 0.0;
  std::int64_t worst_at = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double a = actual(i);
    const double e = expected(i);
    if (!same_class(a, e)) {
      Summary::instance().add(key_, what_, 1e30, tolerance);
      wrong(index, fmt::format("element {}: {} instead of {}", i, a, e));
      return;
    }
    if (!std::isfinite(e)) continue;
    const double d = std::abs(a - e);
    squares += d * d;
    if (d > worst) {
      worst = d;
      worst_at = i;
    }
  }
  const double deviation = std::sqrt(squares);
  Summary::instance().add(key_, what_, deviation, tolerance);
  if (!(deviation <= tolerance)) {
    wrong(index,
          fmt::format("off by {:.3g} in norm where {:.3g} is allowed; worst element {}: {:.9g} "
                      "instead of {:.9g}",
                      deviation, tolerance, worst_at, actual(worst_at), expected(worst_at)));
  }
}

void Comparison::wrong(std::int64_t index, const std::string& text) {
  // Four examples show a pattern; thousands hide it.
  if (wrong_++ < 4) text_ += fmt::format("\n  [{}] {}", index, text);
}

}  // namespace tessera::test
