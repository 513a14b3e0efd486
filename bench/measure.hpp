// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "peaks/peaks.hpp"

namespace tessera::bench {

/// A meter that remembers the best sample of each kind in this process.
class Peaks {
 public:
  explicit Peaks(std::unique_ptr<peaks::Meter> meter) : meter_(std::move(meter)) {}
  double sample(peaks::Kind kind);
  /// The best so far, after at least three samples.
  double best(peaks::Kind kind);
  peaks::Meter& meter() { return *meter_; }

 private:
  struct Seen {
    double best = 0.0;
    int samples = 0;
  };
  std::unique_ptr<peaks::Meter> meter_;
  std::map<peaks::Kind, Seen> seen_{};
};

/// A bracketing peak counts when it is within this share of the best of the process.
constexpr double bracket_bound = 0.03;
/// Fewer samples than this between such peaks, and a row is noisy.
constexpr int samples_that_must_count = 7;

struct Timing {
  double median = 0.0;  ///< seconds of a call, over the samples that count, or all when noisy
  double spread = 0.0;  ///< distance of the quartiles over the median
  int samples = 0;
  int counted = 0;
  bool noisy = false;
  /// The median of each sample's time multiplied by the mean of its two bracketing peaks: what a
  /// call takes of its machine's peak, even where that moves.
  double median_work = 0.0;
};

struct Patience {
  int samples = 9;
  double min_seconds = 0.0;
  double max_seconds = 12.0;
};

/// Calls that a short sample is made of, at most: calls of 5 us make one of 5 ms.
constexpr std::int64_t most_repeats = 1000;

/// Samples `body(turn)` until enough samples count, each between two samples of the peak `kind`.
/// `prepare(turn)`, if any, comes before every call and is not timed.
Timing measure(Peaks& peaks, peaks::Kind kind, const Patience& patience,
               const std::function<void(std::int64_t turn)>& body,
               const std::function<void(std::int64_t turn)>& prepare, std::int64_t repeats_at_most);

/// Seconds of a clock that never goes back.
double now();

/// The value below which `share` of `values` lie, 0.5 for the median; interpolated. `values` is not
/// empty.
double quantile(std::vector<double> values, double share);

/// The median of some ratios, and an interval that holds the true median with a probability of at
/// least 95%, whatever their distribution. Its ends are two of the ratios. Fewer than 6 ratios are
/// too few for that: the interval is then their whole range, and the probability is lower.
struct Ratio {
  double median = 0.0, low = 0.0, high = 0.0;
};
/// `ratios` is not empty.
Ratio ratio_of(std::vector<double> ratios);

}  // namespace tessera::bench
