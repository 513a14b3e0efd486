// SPDX-License-Identifier: Apache-2.0
// Many threads on one Context, and further Contexts, for a long time: the same bits every time, and
// no more memory, descriptors and OpenCL objects at the end than after a while.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <barrier>
#include <chrono>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/soak/memory.hpp"
#include "tests/soak/workload.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test::soak {
namespace {

struct Options {
  double minutes = 1.0;
  std::uint64_t seed = 1;
  int threads = 8;
  int contexts = 4;
  int pool = 2;
  std::string curve;
  std::vector<std::string> implementations = {"opencl.cpu", "opencl.simt", "eigen"};
};

/// The memory of a short run is that of a process that still warms up.
constexpr double judged_from_minutes = 0.5;
constexpr double warm_share = 0.2;
constexpr double rss_share = 0.01;
constexpr int samples_of_a_run = 60;

class Soak {
 public:
  explicit Soak(const Options& o) : o_(o), gate_(o.threads + o.contexts + 1) {}

  int run() {
    make_contexts();
    if (!run_first()) return 1;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < lanes_.size(); ++i) threads.emplace_back([this, i] { work(i); });
    watch();
    for (auto& thread : threads) thread.join();
    for (auto& station : stations_) note(station.damage());
    return report();
  }

 private:
  ContextOptions context_options() {
    return {.threads = o_.pool, .warning_handler = [this](const std::string&) { ++warnings_; }};
  }

  void make_contexts() {
    const Context first(context_options());
    device_ = first.has_device() ? first.device_info().name + ", " + first.device_info().driver
                                 : "host only";
    if (!first.has_device()) o_.implementations = {"eigen"};
    jobs_ = all_jobs(o_.implementations, first.has_device());
    expected_.resize(jobs_.size());
    stations_.emplace_back(first, jobs_);
    for (int i = 0; i < o_.contexts; ++i) stations_.emplace_back(Context(context_options()), jobs_);
    // Out-of-order queues of Intel's runtime for CPUs (2026.22) end in a crash where an event fails
    // and hang where several threads use one each, without this library, too.
    const bool out_of_order =
        !first.has_device() || !first.device_info().platform.starts_with("Intel");
    for (int i = 0; i < o_.threads; ++i) {
      lanes_.emplace_back(stations_[0], jobs_, out_of_order && i % 2 == 1);
    }
    for (int i = 1; i <= o_.contexts; ++i) {
      lanes_.emplace_back(stations_[static_cast<std::size_t>(i)], jobs_,
                          out_of_order && i % 2 == 1);
    }
  }

  /// Of each job the first run, judged by the oracle; then one on each further context.
  bool run_first() {
    for (std::size_t job = 0; job < jobs_.size(); ++job) {
      const std::string wrong = lanes_[0].first_run(job, expected_[job]);
      if (!wrong.empty()) note(jobs_[job].name() + ", its first run: " + wrong);
      for (std::size_t lane = static_cast<std::size_t>(o_.threads); lane < lanes_.size(); ++lane) {
        std::mt19937_64 random(o_.seed);
        note(lanes_[lane].run(job, Ending::waited, random, expected_[job]));
      }
    }
    for (const auto& text : failures_) fmt::print("{}\n", text);
    return failures_.empty();
  }

  void work(std::size_t lane) {
    std::mt19937_64 random(o_.seed * 1000 + lane);
    while (!stops_) {
      const auto job = static_cast<std::size_t>(random() % jobs_.size());
      const auto ending = static_cast<Ending>(random() % endings);
      note(lanes_[lane].run(job, ending, random, expected_[job]));
      ++calls_;
      ++by_ending_[static_cast<std::size_t>(ending)];
      if (!pauses_) continue;
      gate_.arrive_and_wait();  // all calls have ended
      gate_.arrive_and_wait();  // what they left has been counted
    }
  }

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  /// Stops everything for a moment, many times.
  void watch() {
    start_ = std::chrono::steady_clock::now();
    const double length = 60.0 * o_.minutes;
    const double step = length / samples_of_a_run;
    samples_.reserve(samples_of_a_run + 1);
    for (int i = 1; !stops_; ++i) {
      const double next = std::max(step * i, seconds() + 0.25 * step);
      std::this_thread::sleep_for(std::chrono::duration<double>(next - seconds()));
      pauses_ = true;
      gate_.arrive_and_wait();
      Sample now = sample_now();
      now.seconds = seconds();
      now.calls = calls_;
      samples_.push_back(std::move(now));
      pauses_ = false;
      stops_ = seconds() >= length || failed_;
      gate_.arrive_and_wait();
    }
  }

  void note(const std::string& wrong) {
    if (wrong.empty()) return;
    failed_ = true;
    const std::lock_guard lock(mutex_);
    if (failures_.size() < 10) failures_.push_back(wrong);
  }

  int report() {
    const auto& last = samples_.back();
    fmt::print(
        "{}: {} calls of {} kinds in {:.0f} s, {} threads on one context and {} further "
        "contexts, {} warnings\n",
        device_, last.calls, jobs_.size(), last.seconds, o_.threads, o_.contexts, warnings_.load());
    for (int i = 0; i < endings; ++i) {
      fmt::print("{} {}{}", by_ending_[static_cast<std::size_t>(i)].load(),
                 to_string(static_cast<Ending>(i)), i + 1 < endings ? ", " : "\n");
    }
    const double warm = warm_share * last.seconds;
    const Sample* base = &samples_.front();
    std::int64_t most = 0;
    for (const auto& s : samples_) {
      if (s.seconds <= warm) {
        base = &s;
      } else {
        most = std::max(most, s.rss_bytes - base->rss_bytes);
      }
    }
    fmt::print(
        "resident after {:.1f} s: {} bytes, later at most {:+} ({:+.2f} %); heap {:+} bytes "
        "at the end; descriptors {} and {}\n",
        base->seconds, base->rss_bytes, most,
        100.0 * static_cast<double>(most) / static_cast<double>(base->rss_bytes),
        last.heap_bytes - base->heap_bytes, base->descriptors, last.descriptors);
    if (!last.objects.empty()) {
      fmt::print("live while no call runs: {} events, {} buffers; after {:.1f} s {} buffers\n",
                 last.objects.at("event"), last.objects.at("buffer"), base->seconds,
                 base->objects.at("buffer"));
    }
    if (o_.minutes >= judged_from_minutes) note(growth(samples_, warm, rss_share));
    if (!o_.curve.empty() &&
        !write_curve(o_.curve,
                     {fmt::format("soak --minutes {} --seed {} --threads {} --contexts {}",
                                  o_.minutes, o_.seed, o_.threads, o_.contexts),
                      device_},
                     samples_)) {
      return 1;
    }
    for (const auto& text : failures_) fmt::print("{}\n", text);
    fmt::print("{}\n", failures_.empty() ? "passed" : "FAILED");
    return failures_.empty() ? 0 : 1;
  }

  Options o_;
  std::vector<Job> jobs_;
  std::vector<std::vector<std::byte>> expected_;
  std::string device_;
  std::deque<Station> stations_;
  std::deque<Lane> lanes_;
  std::barrier<> gate_;
  std::atomic<bool> pauses_ = false, stops_ = false, failed_ = false;
  std::atomic<std::int64_t> calls_ = 0, warnings_ = 0;
  std::array<std::atomic<std::int64_t>, endings> by_ending_{};
  std::vector<Sample> samples_;
  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::vector<std::string> failures_;
};

/// Everything that a run made, given back; what is left over is a failure.
int run(const Options& options) {
  const Sample before = sample_now();
  int code = 0;
  {
    Soak soak(options);
    code = soak.run();
  }
  const Sample after = sample_now();
  for (const auto& [kind, count] : after.objects) {
    if (count <= before.objects.at(kind)) continue;
    fmt::print("{} of kind {} left behind by the contexts\n", count - before.objects.at(kind),
               kind);
    code = 1;
  }
  return code;
}

}  // namespace
}  // namespace tessera::test::soak

int main(int argc, char** argv) {
  using namespace tessera::test;
  soak::Options options;
  CLI::App app("Calls from many threads for a long time: the same bits, and no growth.");
  app.add_option("--minutes", options.minutes, "length of the run, after the first calls")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "which calls follow one another")->capture_default_str();
  app.add_option("--threads", options.threads, "on the first context")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--contexts", options.contexts, "further ones, with a thread each")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--pool", options.pool, "host threads of each context")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--curve", options.curve, "CSV file for memory over time; scripts/plot_soak.py");
  app.add_option("--implementations", options.implementations, "which")
      ->capture_default_str()
      ->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  if (!take_environment()) return 2;
  testing::InitGoogleTest();
  return soak::run(options);
}
