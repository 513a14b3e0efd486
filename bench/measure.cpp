// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace tessera::bench {
namespace {

/// A sample of short calls repeats them for about this long, far above the clock's and the
/// scheduler's grain.
constexpr double shortest_sample = 0.005;

}  // namespace

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const auto high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - std::floor(at)) * (values[high] - values[low]);
}

Ratio ratio_of(std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  const std::size_t n = ratios.size();
  // The interval goes from the `rank`-th smallest ratio to the `rank`-th largest. `rank` is the
  // largest for which fewer than `rank` ratios lie below the true median with a probability of at
  // most 2.5%. How many lie below it is distributed binomially.
  std::size_t rank = 0;
  double below = 0.0, choose = std::pow(0.5, static_cast<double>(n));
  for (std::size_t k = 0; k < n; ++k) {
    below += choose;
    if (below > 0.025) break;
    rank = k + 1;
    choose *= static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  const std::size_t low = rank == 0 ? 0 : rank - 1;
  return {quantile(ratios, 0.5), ratios[low], ratios[n - 1 - low]};
}

double Peaks::sample(peaks::Kind kind) {
  const double value = meter_->sample(kind);
  auto& seen = seen_[kind];
  seen.best = std::max(seen.best, value);
  ++seen.samples;
  return value;
}

double Peaks::best(peaks::Kind kind) {
  while (seen_[kind].samples < 3) sample(kind);
  return seen_[kind].best;
}

Timing measure(Peaks& peaks, peaks::Kind kind, const Patience& patience,
               const std::function<void(std::int64_t turn)>& body,
               const std::function<void(std::int64_t turn)>& prepare,
               std::int64_t repeats_at_most) {
  struct Sample {
    double seconds, before, after;
  };
  std::vector<Sample> samples;
  std::int64_t turn = 0;
  if (prepare) prepare(turn);
  const double start = now();
  body(turn++);
  const auto repeats =
      std::clamp<std::int64_t>(std::llround(shortest_sample / (now() - start)), 1, repeats_at_most);
  peaks.best(kind);

  const auto counts = [&](const Sample& s) {
    const double least = (1.0 - bracket_bound) * peaks.best(kind);
    return s.before >= least && s.after >= least;
  };
  const auto counted = [&] {
    return static_cast<int>(std::count_if(samples.begin(), samples.end(), counts));
  };
  double before = 0.0;
  for (;;) {
    if (prepare) {
      for (std::int64_t i = 0; i < repeats; ++i) prepare(turn + i);
    }
    // A sample of the peak after preparing also leaves the caches as every sample finds them.
    if (prepare || samples.empty()) before = peaks.sample(kind);
    const double begin = now();
    for (std::int64_t i = 0; i < repeats; ++i) body(turn++);
    const double seconds = (now() - begin) / static_cast<double>(repeats);
    const double after = peaks.sample(kind);
    samples.push_back({seconds, before, after});
    before = after;
    const auto n = static_cast<int>(samples.size());
    const double passed = now() - start;
    if (n >= patience.samples && passed >= patience.min_seconds &&
        counted() >= samples_that_must_count) {
      break;
    }
    // Slow calls give three samples whatever the time, so that there is a median.
    if (passed >= patience.max_seconds && n >= 3) break;
  }

  Timing t;
  t.samples = static_cast<int>(samples.size());
  t.counted = counted();
  t.noisy = t.counted < samples_that_must_count;
  std::vector<double> seconds, work;
  for (const auto& s : samples) {
    if (!t.noisy && !counts(s)) continue;
    seconds.push_back(s.seconds);
    work.push_back(s.seconds * 0.5 * (s.before + s.after));
  }
  t.median = quantile(seconds, 0.5);
  t.spread = (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / t.median;
  t.median_work = quantile(work, 0.5);
  return t;
}

}  // namespace tessera::bench
