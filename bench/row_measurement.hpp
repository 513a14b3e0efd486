// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/arrays.hpp"
#include "bench/check.hpp"
#include "bench/eigen_gemm.hpp"
#include "bench/measure.hpp"

namespace tessera::bench {

struct FirstCall {
  double seconds = 0.0;          ///< with the compiling
  double compile_seconds = 0.0;  ///< of these, what building programs took; 0 where none are built
};

/// What a call and each of its kernels took.
struct CallTimes {
  double seconds = 0.0;
  std::map<std::string, double> kernels{};
};

/// A call whose results are wrong.
class WrongResults : public Error {
 public:
  explicit WrongResults(const std::string& what)
      : Error(ErrorCode::execution_failed, "wrong results: " + what) {}
};

/// Reports to `state` what a row's calls took.
void report_timing(benchmark::State& state, const Timing& timing, const FirstCall& first);

/// Reports how far its results are off.
void report_deviation(benchmark::State& state, const Deviation& deviation);

/// One row of the report: its first call, its samples, the check of what they computed, and the
/// counters. Call first_call, take_samples, check and report once each, in this order; each throws
/// what failed. Who needs the time of single calls, one by one, calls first_call, then timed_call.
class RowMeasurement {
 public:
  /// `context` is the row's own; `data` and `peaks` outlive the measurement.
  RowMeasurement(Context context, const Options& options, const Data& data, Peaks& peaks,
                 const Row& row);
  RowMeasurement(const RowMeasurement&) = delete;
  RowMeasurement& operator=(const RowMeasurement&) = delete;

  void first_call();
  /// Makes one more call and returns its seconds.
  double timed_call();
  /// The same, in a profile.
  CallTimes profiled_call();
  void take_samples(double min_seconds);
  /// Throws `WrongResults`.
  void check();
  void report(benchmark::State& state);
  /// Makes a few more calls, writes their trace to `path` and returns a table of their kernels.
  std::string profile(const std::string& path);

 private:
  /// The arrays of call number `turn`. Several sets take turns, so that no cache holds them.
  Arrays& arrays_of(std::int64_t turn) { return *arrays_[static_cast<std::size_t>(turn) % sets()]; }
  std::size_t sets() const { return arrays_.size(); }
  bool is_gemm() const { return products_.has_value(); }
  void call_once(std::int64_t turn);
  void measure_filter(const Outcome& outcome);
  CostEstimate cost();
  void add_cost_counters(benchmark::State& state);
  void add_check_counters(benchmark::State& state) const;

  Context context_;
  const Options& options_;
  const Data& data_;
  Peaks& peaks_;
  Row row_;
  peaks::Kind multiply_;  ///< how fast the row's types can be multiplied
  std::vector<std::unique_ptr<Arrays>> arrays_{};
  std::optional<EigenGemm> products_{};  ///< only for the row of bare products

  Dispatch dispatch_{};
  FirstCall first_{};
  std::int64_t turns_ = 0;  ///< calls made for samples
  Timing timing_{};
  Deviation deviation_{};
  ByName<FilterError> filter_errors_{};  ///< of each gradient that is filtered
  double filter_time_ = 1.0;             ///< time of a call over that without the filter
};

}  // namespace tessera::bench
