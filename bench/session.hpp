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

/// One process: the options, the peaks of its device and of its host, and the last problem's data.
class Session {
 public:
  Session(const Options& options, double min_seconds);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Every row that the options ask for, in an order in which problems stay together. Rows that
  /// nothing can run have `refusal`.
  struct Planned {
    Row row;
    std::string refusal;  ///< empty: it runs
  };
  std::vector<Planned> plan();

  /// Makes a row's first call and returns what makes another and says how many seconds it took. The
  /// session must outlive it.
  std::function<double()> prepare(const Row& row);

  /// Measures one row into `state`.
  void run(benchmark::State& state, const Planned& planned);

  /// What a report says of the machine: device, driver, peaks, build, environment.
  std::vector<std::pair<std::string, std::string>> description();
  /// A row gave wrong results or failed.
  bool failed() const { return failed_; }

 private:
  Context make_context() const;
  /// As the options ask for it, as far as the operator has that.
  Row row_of(ProblemKey problem, Pass pass) const;
  Peaks& peaks_of(const std::string& implementation);
  const Data& data_of(const ProblemKey& key);

  Options options_;
  double min_seconds_;
  Context context_;  ///< the meters' own; each row gets a fresh one
  std::unique_ptr<Peaks> device_peaks_{}, host_peaks_{};
  std::optional<Data> data_{};
  bool failed_ = false;
};

}  // namespace tessera::bench
