// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/dispatch/completion.hpp"
#include "host/opencl/flight_record.hpp"
#include "host/opencl/host_ranges.hpp"
#include "host/opencl/runtime.hpp"
#include "host/opencl/workspace_pool.hpp"

namespace tessera::opencl {

/// Enqueues an unmapping; where the driver refuses, once more, because a mapping that stays keeps
/// the buffer alive for good. Returns the status of the first try; `event`: of the try that was
/// taken, null when neither was.
cl_int enqueue_unmap(cl_command_queue queue, cl_mem memory, void* pointer, cl_uint wait_count,
                     const cl_event* wait_list, cl_event* event);

/// Throws Error `code`, with its place in wait_for and its status, where an event's command has
/// failed.
void check_not_failed(std::span<const cl_event> events, const std::string& device, ErrorCode code);

/// Commands of one call in order on one queue, and everything they need until they have run.
///
/// The chain: on an out-of-order queue each command waits for the one before it. For the caller's
/// events the first command waits, and each command where the driver runs what follows a failed one
/// (`Runtime::ends_what_follows`): kernels would read lists that nothing has written.
class Flight {
 public:
  Flight(std::shared_ptr<ContextState> state, Runtime& runtime, cl_command_queue queue,
         const std::vector<cl_event>& wait_for);
  /// Waits for what is still in flight, without throwing, before anything is given back.
  ~Flight();
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  Runtime& runtime() const noexcept { return runtime_; }
  cl_command_queue queue() const noexcept { return queue_(); }
  const std::string& device() const noexcept { return runtime_.info().name; }

  // The wait list of the next command.
  cl_uint wait_count() const noexcept { return static_cast<cl_uint>(waits_.size()); }
  const cl_event* wait_list() const noexcept { return waits_.empty() ? nullptr : waits_.data(); }
  /// Makes room for the events of commands about to be enqueued: nothing may throw between a
  /// command and `issued`, or nobody waits for it. Throws Error invalid_argument where an event of
  /// the caller's has failed before the first command.
  void make_room(std::size_t commands = 1);
  /// The event of a command just enqueued; takes the reference over.
  void issued(cl_event event, const Command& command);
  bool anything_issued() const noexcept { return !events_.empty(); }
  cl_event last() const noexcept { return events_.empty() ? nullptr : events_.back()(); }

  /// Blocks until the caller's wait list is complete: host memory may only be looked at then.
  void wait_for_caller();
  /// Blocks until every command has run; throws Error when one of them failed.
  void wait();
  /// `enqueue_unmap` in the chain; throws Error when the first try was refused.
  void unmap(cl_mem memory, void* pointer, const char* doing);
  /// Begins what was enqueued, before the call returns.
  void flush();

  /// Retains a caller's memory.
  void keep(cl_mem memory);
  void keep(HostRanges::Lease lease) { ranges_.push_back(std::move(lease)); }
  void keep(WorkspacePool::Lease lease) { blocks_.push_back(std::move(lease)); }
  void keep(std::shared_ptr<void> data) { data_.push_back(std::move(data)); }
  void add_check(std::function<void()> check) { checks_.push_back(std::move(check)); }
  bool has_checks() const noexcept { return !checks_.empty(); }
  /// Everything that `wait` made unnecessary, except the checks.
  void release() noexcept;
  /// Throws what the outputs say is wrong.
  void run_checks();

 private:
  /// On a queue of the profile's in place of the context's: after what that has, and before what it
  /// gets from here on.
  void follow_own_queue();
  void precede_own_queue();
  void wait_quietly() noexcept;
  /// What went wrong, where it is not the wait itself that failed with status `failed`.
  void check_statuses(cl_int failed);

  std::shared_ptr<ContextState> state_;  // first: released last
  Runtime& runtime_;
  std::unique_ptr<FlightRecord> record_;  ///< of a profile, or null
  cl::CommandQueue queue_;
  bool queue_is_profiles_ = false;
  const bool out_of_order_;
  bool repeats_caller_events_ = false;
  std::vector<cl::Event> caller_events_;  // retained until the commands have run
  std::vector<cl_event> waits_;
  // Commands whose status nobody has looked at, and the last one.
  std::vector<cl::Event> events_;
  bool waited_ = true;
  std::vector<cl::Memory> memories_;
  std::vector<HostRanges::Lease> ranges_;
  std::vector<WorkspacePool::Lease> blocks_;
  std::vector<std::shared_ptr<void>> data_;
  std::vector<std::function<void()>> checks_;
};

/// A finished call that still has checks to run, or one in flight.
class FlightState final : public Completion::State {
 public:
  explicit FlightState(std::unique_ptr<Flight> flight, bool finished)
      : flight_(std::move(flight)), finished_(finished) {}
  ~FlightState() override;
  void wait_once() override;
  cl_event event() const noexcept override;

 private:
  std::unique_ptr<Flight> flight_;
  const bool finished_;
};

}  // namespace tessera::opencl
