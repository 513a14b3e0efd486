// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/soak/gate.hpp"
#include "tests/support/problem.hpp"
#include "tests/support/results.hpp"
#include "tests/support/test_operator.hpp"

/// The calls that tests/soak makes over and over.
namespace tessera::test::soak {

/// One kind of call. The kernels of all kinds are few: what is compiled says nothing here.
struct Job {
  std::string implementation;
  Pass pass;
  Case c;
  std::string name() const;
};
/// Every operator, two shapes of each, host and device memory, on each of the implementations.
std::vector<Job> all_jobs(const std::vector<std::string>& implementations, bool has_device);

/// How a call ends.
enum class Ending {
  waited,     ///< and waited for again
  dropped,    ///< its Completion is destroyed
  moved,      ///< into another Completion, which is waited for
  replaced,   ///< another Completion is assigned to its own
  followed,   ///< a second call waits for its event, and it is dropped first
  gated,      ///< enqueued behind an event that completes later
  cancelled,  ///< enqueued behind an event that then fails: an Error, or a warning when dropped
  refused,    ///< one thing is wrong in it: an Error before any output is touched
};
inline constexpr int endings = 8;
const char* to_string(Ending ending);

/// The inputs of every job in memory of one context, which its threads share.
class Station {
 public:
  Station(Context context, const std::vector<Job>& jobs);

  Context& context() { return context_; }
  const Arguments& arguments(std::size_t job) const { return *arguments_[job]; }
  /// Empty, or which input has changed.
  std::string damage();

 private:
  Context context_;
  std::vector<std::unique_ptr<Arguments>> arguments_;
};

/// One thread's outputs, and its own queue.
class Lane {
 public:
  /// With a queue of its own that is out of order, or in order.
  Lane(Station& station, const std::vector<Job>& jobs, bool out_of_order);

  /// Runs the job once and judges it by the oracle; empty: it is right. `bytes`: what it left.
  std::string first_run(std::size_t job, std::vector<std::byte>& bytes);
  /// Runs the job; empty, or what is wrong, compared with a first run's bytes.
  std::string run(std::size_t job, Ending ending, std::mt19937_64& random,
                  const std::vector<std::byte>& expected);

 private:
  void poison(std::size_t job);
  /// Every byte of every result; `beside`: what was written beside one.
  const std::vector<std::byte>& bytes_of(std::size_t job, std::string& beside);
  /// False where the call has no results to compare.
  bool run_to_its_end(std::size_t job, Ending ending, std::mt19937_64& random);
  bool cancel(std::size_t job, bool waits);
  CaseCall call(std::size_t job);

  Station& station_;
  const std::vector<Job>& jobs_;
  Gates gates_;
  std::vector<std::unique_ptr<Results>> results_;
  std::vector<std::byte> bytes_;
};

}  // namespace tessera::test::soak
