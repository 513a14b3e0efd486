// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bench/data.hpp"
#include "bench/measure.hpp"

namespace tessera::bench {

struct CustomRow;      // custom.hpp
class RowMeasurement;  // row_measurement.hpp

/// What the bench keeps from row to row: the options, the peaks of the device and of the host, and
/// the data of the last problem.
class Session {
 public:
  Session(const Options& options, double min_seconds);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Every row that the options ask for; rows of one problem follow each other.
  struct Planned {
    Row row;
    std::string refusal;  ///< why the row cannot run; empty: it can
  };
  std::vector<Planned> plan();

  /// Makes a row's first call, for more of its calls one by one. The session must outlive it.
  std::shared_ptr<RowMeasurement> prepare(const Row& row);
  /// The same; what it returns makes one more call and tells its seconds.
  std::function<double()> prepare(const CustomRow& row);

  /// Measures one row and reports it to `state`.
  void run(benchmark::State& state, const Planned& planned);
  void run(benchmark::State& state, const CustomRow& row);

  Peaks& peaks_of(const std::string& implementation);
  /// What a report says of the machine: device, driver, peaks, build, environment.
  std::vector<std::pair<std::string, std::string>> description();
  /// Whether any row failed or gave wrong results.
  bool failed() const { return failed_; }
  /// With --profile, tables of the rows measured so far.
  const std::string& profiles() const { return profiles_; }

 private:
  /// A context that leaves what it compiles in `dump`; empty: nowhere.
  Context make_context(const std::string& dump = {}) const;
  /// The same, for a custom kernel: it has a device.
  Context make_custom_context() const;
  /// The row of a problem and a pass, with those of the options that its operator has.
  Row row_of(ProblemKey problem, Pass pass) const;
  /// The row with each of the block sizes asked for.
  std::vector<Row> with_blocks(Row row) const;
  const Data& data_of(const ProblemKey& key);
  /// The file of the next row's trace.
  std::string next_trace();

  Options options_;
  double min_seconds_;
  Context context_;  ///< for meters and questions; each row runs in a fresh one
  std::unique_ptr<Peaks> device_peaks_{}, host_peaks_{};
  std::optional<Data> data_{};
  bool failed_ = false;
  std::string profiles_{};
  int traces_ = 0;
};

}  // namespace tessera::bench
