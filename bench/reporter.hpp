// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera::bench {

/// The names of rows are a contract, to which Google Benchmark appends how it was told to run them
/// ("/iterations:1/manual_time"): reporters see the names alone.
template <class Reporter>
class Named final : public Reporter {
 public:
  using Run = benchmark::BenchmarkReporter::Run;
  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<Run> named = runs;
    for (auto& run : named) {
      run.run_name.iterations.clear();
      run.run_name.time_type.clear();
    }
    Reporter::ReportRuns(named);
  }
};

/// A reporter for "console", "json" or "csv"; "": lines. Throws `Error invalid_argument`.
std::unique_ptr<benchmark::BenchmarkReporter> make_reporter(const std::string& format);

/// A line per row that fits a terminal; the JSON has everything.
class LineReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
};

}  // namespace tessera::bench
