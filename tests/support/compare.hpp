// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

/// Comparison with the oracle and the tally of deviations that the report is made of.
namespace tessera::test {

/// One line of the summary.
struct SummaryKey {
  std::string implementation, operation, pass, types, layout;
  friend auto operator<=>(const SummaryKey&, const SummaryKey&) = default;
};

/// Counts cases and keeps the worst deviations; written when the process ends to the file that
/// TESSERA_TEST_SUMMARY names (CSV, appended, so that several processes share one). Thread-safe.
class Summary {
 public:
  static Summary& instance();
  void add_case(const SummaryKey& key, bool refused);
  /// A deviation and its tolerance.
  void add(const SummaryKey& key, const std::string& what, double deviation, double tolerance);
  /// Names what this thread runs and compares from now on; a crash report names the last one.
  void set_case(const std::string& name);
  void write() const;
};

/// Prints the case that ran last when a guard page stops the process.
void report_crashes();

/// Compares numbers one at a time; the first few that are wrong become a gtest failure.
class Comparison {
 public:
  Comparison(SummaryKey key, std::string what) : key_(std::move(key)), what_(std::move(what)) {}
  /// Reports: one failure with the first few wrong numbers and their count.
  ~Comparison();
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  /// NaN must meet NaN, an infinity the same infinity, a finite number one within `tolerance`.
  void number(std::int64_t index, double actual, double expected, double tolerance);
  /// Classes must agree element by element; the norm of the finite differences is within
  /// `tolerance`. `actual` and `expected` give element i of n.
  void norm(std::int64_t index, std::int64_t n, const std::function<double(std::int64_t)>& actual,
            const std::function<double(std::int64_t)>& expected, double tolerance);
  void wrong(std::int64_t index, const std::string& text);

 private:
  bool same_class(double actual, double expected) const;
  SummaryKey key_;
  std::string what_, text_;
  std::int64_t wrong_ = 0;
};

}  // namespace tessera::test
