// SPDX-License-Identifier: Apache-2.0
#include "bench/reporter.hpp"

#include <fmt/format.h>

#include <cmath>
#include <sstream>

#include "programs/report.hpp"
#include "tessera/error.hpp"

namespace tessera::bench {
namespace {

double counter_of(const benchmark::BenchmarkReporter::Run& run, const char* name) {
  const auto found = run.counters.find(name);
  return found == run.counters.end() ? NAN : found->second.value;
}

std::string status_of(const benchmark::BenchmarkReporter::Run& run) {
  // Google Benchmark keeps numbers, a label and a message of a row. The label of a row without
  // results is free for its status.
  if (run.error_occurred) return run.report_label;
  return counter_of(run, "noisy") > 0.0 ? "noisy" : "ok";
}

}  // namespace

std::unique_ptr<benchmark::BenchmarkReporter> make_reporter(const std::string& format,
                                                            std::ostream* to) {
  if (format.empty()) return std::make_unique<Named<LineReporter>>(to);
  if (format == "json") return std::make_unique<Named<StatusReporter>>(to);
  if (format == "console") return std::make_unique<Named<benchmark::ConsoleReporter>>(to);
// The CSV reporter is deprecated for its demand that all rows have the same counters, which ours
// do.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  if (format == "csv") return std::make_unique<Named<benchmark::CSVReporter>>(to);
#pragma GCC diagnostic pop
  throw Error(ErrorCode::invalid_argument,
              fmt::format("'{}' is no format of Google Benchmark: console, json or csv", format));
}

void StatusReporter::ReportRuns(const std::vector<Run>& runs) {
  std::ostream& out = GetOutputStream();
  for (const auto& run : runs) {
    std::ostringstream stream;
    SetOutputStream(&stream);
    JSONReporter::ReportRuns({run});
    SetOutputStream(&out);
    std::string text = stream.str();
    if (run.run_type == Run::RT_Iteration) {  // statistics of repetitions have no status
      // A driver's message may be no UTF-8.
      const auto quoted = [](const std::string& value) {
        return programs::Json(value).dump(-1, ' ', false, programs::Json::error_handler_t::replace);
      };
      // The last line is the brace that ends the row.
      text.insert(text.rfind('\n'), fmt::format(",\n      \"status\": {},\n      \"error\": {}",
                                                quoted(status_of(run)), quoted(run.error_message)));
    }
    out << text;
  }
}

bool LineReporter::ReportContext(const Context&) {
  GetOutputStream() << fmt::format(
      "{:<72} {:>10} {:>7} {:>8} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "row", "ms",
      "spread", "GFLOP/s", "peak", "bound", "extra MiB", "first s", "compile s", "mean dev.",
      "largest");
  return true;
}

void LineReporter::ReportRuns(const std::vector<Run>& runs) {
  auto& out = GetOutputStream();
  for (const auto& run : runs) {
    if (run.run_type != Run::RT_Iteration) continue;  // statistics of repetitions: see the JSON
    const std::string name = run.benchmark_name();
    if (run.error_occurred) {
      out << fmt::format("{:<72} {}\n", name, run.error_message);
      continue;
    }
    const auto value = [&](const char* counter) { return counter_of(run, counter); };
    // Nobody knows how many operations a custom kernel takes nor what it should give, and with
    // --no-peak-list no bound is known: such a cell has a dash.
    const auto cell = [&](const char* counter, double scale, const char* format) {
      const double number = scale * value(counter);
      return std::isnan(number) ? "-" : fmt::format(fmt::runtime(format), number);
    };
    out << fmt::format(
        "{:<72} {:>10} {:>7} {:>8} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9}{}\n", name,
        cell("median_seconds", 1e3, "{:.3f}"), cell("spread", 100.0, "{:.1f}%"),
        cell("flops_per_second", 1e-9, "{:.1f}"), cell("fraction_of_peak", 100.0, "{:.1f}%"),
        cell("fraction_of_bound", 100.0, "{:.1f}%"),
        cell("extra_bytes_peak", 1.0 / (1 << 20), "{:.1f}"),
        cell("first_call_seconds", 1.0, "{:.3f}"), cell("compile_seconds", 1.0, "{:.3f}"),
        cell("mean_abs_deviation", 1.0, "{:.2g}"), cell("max_abs_deviation", 1.0, "{:.2g}"),
        value("noisy") > 0.0
            ? fmt::format("  noisy ({:.0f}/{:.0f}), {:.1f}% of the peak at that moment",
                          value("samples_counted"), value("samples"),
                          100.0 * value("fraction_of_bracket"))
            : "");
    out << fmt::format("    {}\n", run.report_label);
  }
  out.flush();
}

}  // namespace tessera::bench
