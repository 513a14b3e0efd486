// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace tessera::bench {

/// The names of rows are a contract, to which Google Benchmark appends how it was told to run them
/// ("/iterations:1/manual_time"): reporters see the names alone.
template <class Reporter>
class Named final : public Reporter {
 public:
  explicit Named(std::ostream* to) : to_(to) {}
  bool ReportContext(const benchmark::BenchmarkReporter::Context& context) override {
    if (to_ != nullptr) this->SetOutputStream(to_);
    return Reporter::ReportContext(context);
  }
  using Run = benchmark::BenchmarkReporter::Run;
  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<Run> named = runs;
    for (auto& run : named) {
      run.run_name.iterations.clear();
      run.run_name.time_type.clear();
    }
    Reporter::ReportRuns(named);
  }

 private:
  std::ostream* to_;
};

/// A reporter for "console", "json" or "csv"; "": lines. Throws `Error invalid_argument`. With `to`
/// it writes there, wherever Google Benchmark tells it to.
std::unique_ptr<benchmark::BenchmarkReporter> make_reporter(const std::string& format,
                                                            std::ostream* to = nullptr);

/// Google Benchmark's JSON. Each row also has its "status", one of ok, noisy, wrong, failed and
/// refused, and its "error", which is empty where it has results.
class StatusReporter : public benchmark::JSONReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override;
};

/// A line per row that fits a terminal; the JSON has everything.
class LineReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
};

}  // namespace tessera::bench
