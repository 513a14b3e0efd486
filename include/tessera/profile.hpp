// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/context.hpp"
#include "tessera/execution.hpp"

namespace tessera {

/// What a span of time in a profile was spent on.
enum class ProfileKind {
  call,    ///< on the host, from a call's start until it returned
  kernel,  ///< on the device, by the device's clock
  task,    ///< on a thread of the host: of `eigen`'s pool, or the whole of another implementation
  copy,    ///< copies between host and device, by either clock, and mappings
  wait,    ///< the host waited: for the device, for events, for a compiler
};

/// The enumerator's own name.
TESSERA_API const char* to_string(ProfileKind kind) noexcept;

/// Spans of one name in calls of one kind.
struct ProfileRow {
  ProfileKind kind = ProfileKind::call;
  std::string name{};            ///< of the kernel; of a task its phase
  std::string implementation{};  ///< as in Dispatch; empty: no implementation served the call
  std::string operation{};       ///< the operator, "linear_cross_entropy", or a custom kernel
  std::string pass{};            ///< "value_and_grad"; empty for custom kernels
  std::int64_t calls = 0;        ///< spans: launches of a kernel, tasks, copies, waits
  std::int64_t total_ns = 0;     ///< nanoseconds of them all
  std::int64_t min_ns = 0, max_ns = 0;
  std::int64_t untimed = 0;      ///< of `calls`, commands whose queue keeps no times
  std::int64_t work_groups = 0;  ///< of the largest launch; 0: the driver chose, or no kernel
  std::vector<NamedValue> block_sizes{}, knobs{};  ///< of the calls
};

/// Where the time went. Spans overlap: a host waits while the device computes. Here each instant
/// counts once, for the first of these in order that was going on, on any thread or queue.
struct ProfileTimes {
  double kernels = 0.0;  ///< seconds of kernels, and of tasks on the host
  double copies = 0.0;
  double waits = 0.0;
  double rest = 0.0;  ///< of calls, none of the others: checks, arguments, enqueueing

  double total() const noexcept { return kernels + copies + waits + rest; }
};

/// While it lives, calls of its Context, on any thread and through any copy, are recorded: which
/// kernels ran how long, copies, waits, and the tasks of host threads. Results have the same bits
/// as without. A call outside a profile takes no longer for there being such a thing.
///
/// Calls on the Context's own queue run on another one within a profile, which keeps times, in the
/// same order among each other and among what else is enqueued on the Context's. On a caller's
/// queue (`ExecutionOptions::queue`, `Context::from_queue`) that was made without
/// CL_QUEUE_PROFILING_ENABLE there are the wall times of calls and waits alone, and a note.
///
/// An asynchronous call is complete here once its Completion was waited for or dropped. The profile
/// keeps what it needs of the Context alive, which may be destroyed first.
class TESSERA_API Profile {
 public:
  /// Throws Error invalid_argument where the Context was moved from, or has a Profile already.
  explicit Profile(const Context& context);
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;
  /// Calls are no longer recorded.
  ~Profile();

  /// What ran until now, of each kind the longest in total first. Thread-safe.
  std::vector<ProfileRow> kernels() const;
  ProfileTimes times() const;
  /// What is missing, and why.
  std::vector<std::string> notes() const;

  /// Writes all spans until now as a trace that Perfetto (https://ui.perfetto.dev) and Chrome
  /// (about:tracing) open: JSON, complete events in microseconds since the profile began. Rows are
  /// calls, the device's queue, copies and waits by thread, and threads with tasks. Written beside
  /// its place and renamed, so that a file that was there stays whole. Throws Error
  /// invalid_argument for a path that is empty or a folder, and execution_failed where the file
  /// cannot be written; the profile is unchanged, and may be written elsewhere.
  void write(const std::string& path) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
