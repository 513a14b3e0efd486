// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host/dispatch/thread_pool.hpp"
#include "tessera/profile.hpp"

/// What a Profile records: spans of time with names, of calls. It knows no OpenCL; host/opencl adds
/// the commands of a device.
namespace tessera::dispatch {

/// Nanoseconds of the host's steady clock.
std::int64_t now_ns() noexcept;

struct RecordedSpan {
  ProfileKind kind = ProfileKind::call;
  std::string name{};               ///< empty: that of the call
  std::int64_t begin = 0, end = 0;  ///< of now_ns()
  bool is_timed = true;
  bool on_device = false;
  std::int64_t groups = 0;  ///< work-groups of a launch
  int thread = 0;           ///< a number of the thread, for as long as the process lives
  std::size_t call = 0;     ///< its place in Recorded::calls
};

struct RecordedCall {
  std::string operation{}, pass{};
  /// Of what served it.
  std::string implementation{}, schedule{};
  std::vector<NamedValue> block_sizes{}, knobs{};
  bool has_work = false;  ///< kernels or tasks, or there will be some
};

/// All that there is at the moment.
struct Recorded {
  std::vector<RecordedCall> calls{};
  std::vector<RecordedSpan> spans{};
};

/// What calls write to while a Profile is open. Thread-safe. Nothing here throws into a call: what
/// there is no memory for is left out, which is a note.
class Recorder {
 public:
  /// The call's place. `operation`: as dispatch::Request has it.
  std::size_t begin_call(const std::string& operation);
  void served(std::size_t call, const Dispatch& dispatch) noexcept;
  void add(RecordedSpan span) noexcept;
  void note(const std::string& text) noexcept;
  /// Says that commands of a device are to come.
  void expect_work(std::size_t call) noexcept;
  /// Whether something served the call that has neither kernels nor tasks.
  bool lacks_work(std::size_t call) const noexcept;

  Recorded recorded() const;
  std::vector<std::string> notes() const;
  const std::int64_t begin = now_ns();

 private:
  mutable std::mutex mutex_;
  Recorded recorded_;
  std::set<std::string> notes_;
  std::int64_t left_out_ = 0;
};

/// A call that is recorded. What outlives the call has a copy.
class CallRecord {
 public:
  CallRecord(std::shared_ptr<Recorder> recorder, std::size_t call)
      : recorder_(std::move(recorder)), call_(call) {}
  /// On this thread, where it is no device's.
  void add(RecordedSpan span) const noexcept;
  void note(const std::string& text) const noexcept { recorder_->note(text); }
  void served(const Dispatch& dispatch) const noexcept { recorder_->served(call_, dispatch); }
  void expect_work() const noexcept { recorder_->expect_work(call_); }
  bool lacks_work() const noexcept { return recorder_->lacks_work(call_); }

 private:
  std::shared_ptr<Recorder> recorder_;
  std::size_t call_ = 0;
};

/// The call that this thread is in; nullptr: none that is recorded.
const CallRecord* current_call() noexcept;

/// A span of this thread's: from here to the end of the scope. `name` is a literal.
class Timed {
 public:
  /// nullptr: nothing is recorded.
  Timed(const CallRecord* call, ProfileKind kind, const char* name) noexcept
      : call_(call), kind_(kind), name_(name), begin_(call != nullptr ? now_ns() : 0) {}
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed() {
    if (call_ != nullptr) [[unlikely]] {
      end();
    }
  }

 private:
  void end() const noexcept;

  const CallRecord* const call_;
  const ProfileKind kind_;
  const char* const name_;
  const std::int64_t begin_;
};

/// `threads.parallel_for`, whose tasks are recorded under that name (a literal) where this thread's
/// call is.
void parallel_for(ThreadPool& threads, const char* name, std::int64_t tasks,
                  const std::function<void(std::int64_t task, int worker)>& body);

/// The recorder of the Profile that a Context has at the moment. Thread-safe.
class Profiling {
 public:
  bool is_open() const noexcept { return is_open_.load(std::memory_order_relaxed); }
  /// nullptr: none.
  std::shared_ptr<Recorder> recorder() const;
  /// False: there is one already.
  bool open(std::shared_ptr<Recorder> recorder);
  void close() noexcept;

 private:
  std::atomic<bool> is_open_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<Recorder> recorder_;
};

/// A call on this thread, from its construction on, where `profiling` is open.
class CallScope {
 public:
  template <class Request>
  CallScope(const Profiling& profiling, const Request& request) {
    if (profiling.is_open()) [[unlikely]] {
      begin(profiling.recorder(), request.operation());
    }
  }
  ~CallScope() {
    if (record_) end();
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  void served(const Dispatch& dispatch) const noexcept {
    if (record_) record_->served(dispatch);
  }

 private:
  void begin(std::shared_ptr<Recorder> recorder, const std::string& operation);
  void end() noexcept;

  std::optional<CallRecord> record_{};
  const CallRecord* outer_ = nullptr;  ///< of a call that this one is made in
  std::int64_t begin_ = 0;
};

/// What a span is called.
const std::string& name_of(const RecordedSpan& span, const RecordedCall& call);
/// The rows and times of `Profile`.
std::vector<ProfileRow> rows_of(const Recorded& recorded);
ProfileTimes times_of(const Recorded& recorded);
/// The text of its file; times count from `begin`.
std::string trace_of(Recorded recorded, std::int64_t begin, const std::vector<std::string>& notes);

}  // namespace tessera::dispatch
