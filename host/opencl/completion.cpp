// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/completion.hpp"

#include <algorithm>

#include "host/opencl/errors.hpp"

namespace tessera::opencl {
namespace {

// Events are kept so that the status of every command can be checked. A call of thousands of
// commands looks at those that have run whenever this many have gathered.
constexpr std::size_t most_unchecked_events = 256;

cl_int status_of(const cl::Event& event, const std::string& device) {
  cl_int status = CL_QUEUED;
  check(
      clGetEventInfo(event(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr),
      "clGetEventInfo", device, "reading the status of a command");
  return status;
}

/// The queue of a call; within a profile, one that keeps times where it is not the caller's.
cl_command_queue queue_for(Runtime& runtime, cl_command_queue given) {
  if (given != nullptr) return given;
  const cl_command_queue profiling =
      dispatch::current_call() != nullptr ? runtime.profiling_queue() : nullptr;
  return profiling != nullptr ? profiling : runtime.native_queue();
}

}  // namespace

void check_not_failed(std::span<const cl_event> events, const std::string& device, ErrorCode code) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    const cl_int status = status_of(cl::Event(events[i], true), device);
    if (status >= 0) continue;
    throw Error(code, "wait_for[" + std::to_string(i) +
                          "] is an event of a command that failed with " + code_name(status) +
                          ", so that what the call would read was not made; look at that command");
  }
}

Flight::Flight(std::shared_ptr<ContextState> state, Runtime& runtime, cl_command_queue queue,
               const std::vector<cl_event>& wait_for)
    : state_(std::move(state)),
      runtime_(runtime),
      queue_(queue_for(runtime, queue), true),
      out_of_order_(runtime.is_out_of_order(queue_())),
      waits_(wait_for) {
  // More than a small call has.
  events_.reserve(32);
  blocks_.reserve(24);
  ranges_.reserve(8);
  caller_events_.reserve(wait_for.size());
  for (auto event : wait_for) caller_events_.emplace_back(event, true);
  repeats_caller_events_ = !wait_for.empty() && !runtime.ends_what_follows();
  if (const auto* call = dispatch::current_call()) [[unlikely]] {
    record_ = std::make_unique<FlightRecord>(*call, runtime.keeps_times(queue_()));
    queue_is_profiles_ = queue == nullptr && queue_() != runtime.native_queue();
    if (queue_is_profiles_) follow_own_queue();
  }
}

void Flight::follow_own_queue() {
  cl_event reached = nullptr;
  waits_.reserve(waits_.size() + 1);
  caller_events_.reserve(caller_events_.size() + 1);
  check(clEnqueueMarkerWithWaitList(runtime_.native_queue(), 0, nullptr, &reached),
        "clEnqueueMarkerWithWaitList", device(), "following the context's queue");
  caller_events_.emplace_back(reached, false);
  waits_.push_back(reached);
  check(clFlush(runtime_.native_queue()), "clFlush", device());
}

void Flight::precede_own_queue() {
  // PoCL 3.1 never returns from enqueueing what waits for a command that has failed.
  const cl_event done = last();
  if (status_of(cl::Event(done, true), device()) < 0) return;
  check(clEnqueueBarrierWithWaitList(runtime_.native_queue(), 1, &done, nullptr),
        "clEnqueueBarrierWithWaitList", device(), "preceding the context's queue");
  check(clFlush(runtime_.native_queue()), "clFlush", device());
}

Flight::~Flight() {
  if (!waited_) wait_quietly();
}

void Flight::make_room(std::size_t commands) {
  if (record_) [[unlikely]] {
    record_->before();
  }
  if (events_.capacity() - events_.size() < commands) {
    events_.reserve(2 * events_.size() + commands);
  }
  waits_.reserve(caller_events_.size() + 1);
  // Again: what the call has compiled meanwhile may have taken seconds. PoCL 3.1 never returns from
  // enqueueing what waits for a command that has failed.
  if (!anything_issued()) check_not_failed(waits_, device(), ErrorCode::invalid_argument);
}

void Flight::issued(cl_event event, const Command& command) {
  events_.emplace_back(event, false);
  if (record_) [[unlikely]] {
    record_->issued(event, command);
  }
  waited_ = false;
  waits_.clear();
  if (repeats_caller_events_) {
    for (const auto& of_caller : caller_events_) waits_.push_back(of_caller());
  }
  if (out_of_order_) waits_.push_back(event);
  if (events_.size() >= most_unchecked_events) {
    // A failed command stays, so that wait() reports it; the last one, so that it can be waited
    // for.
    std::erase_if(events_, [&](const cl::Event& done) {
      return done() != event && status_of(done, device()) == CL_COMPLETE;
    });
  }
}

void Flight::wait_for_caller() {
  if (anything_issued() || waits_.empty()) return;
  runtime_.wait_for(waits_);
  waits_.clear();
  repeats_caller_events_ = false;
}

void Flight::wait() {
  if (!waited_) {
    const cl_event waited_for = last();
    const auto* recorded = record_ ? &record_->call() : nullptr;
    cl_int status = CL_SUCCESS;
    {
      const dispatch::Timed timed(recorded, ProfileKind::wait, "wait for the device");
      status = clWaitForEvents(1, &waited_for);
    }
    if (status != CL_SUCCESS && status != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) {
      wait_quietly();
      throw_error(status, "clWaitForEvents", device(), "waiting for the call");
    }
    waited_ = true;
    if (record_) [[unlikely]] {
      record_->collect();
    }
    check_statuses(status);
  }
  repeats_caller_events_ = false;
  if (!out_of_order_) waits_.clear();
}

void Flight::check_statuses(cl_int failed) {
  for (const auto& event : events_) {
    const cl_int status = status_of(event, device());
    if (status < 0 && failed >= 0) failed = status;
  }
  if (events_.size() > 1) events_.erase(events_.begin(), events_.end() - 1);
  if (failed == CL_SUCCESS) return;
  // What waited for a failed command fails with a status of its own, or not at all: Intel's runtime
  // says it of the wait alone.
  std::vector<cl_event> waited_for;
  for (const auto& event : caller_events_) waited_for.push_back(event());
  check_not_failed(waited_for, device(), ErrorCode::execution_failed);
  throw Error(classify(failed), "a command failed on " + device() + " with status " +
                                    code_name(failed) +
                                    " while it ran; check the driver "
                                    "(clinfo), or choose another device or implementation");
}

void Flight::wait_quietly() noexcept {
  // Memory must not be given back while commands may use it, so a refused wait is tried by other
  // means before giving up.
  const cl_event waited_for = last();
  const cl_int status = clWaitForEvents(1, &waited_for);
  if (status != CL_SUCCESS && status != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST &&
      clFinish(queue_()) != CL_SUCCESS) {
    clWaitForEvents(1, &waited_for);
  }
  waited_ = true;
  if (record_) record_->collect();
}

cl_int enqueue_unmap(cl_command_queue queue, cl_mem memory, void* pointer, cl_uint wait_count,
                     const cl_event* wait_list, cl_event* event) {
  *event = nullptr;
  const auto enqueue = [&] {
    return clEnqueueUnmapMemObject(queue, memory, pointer, wait_count, wait_list, event);
  };
  const cl_int status = enqueue();
  if (status != CL_SUCCESS && enqueue() != CL_SUCCESS) *event = nullptr;
  return status;
}

void Flight::unmap(cl_mem memory, void* pointer, const char* doing) {
  make_room();
  cl_event event = nullptr;
  const cl_int status = enqueue_unmap(queue_(), memory, pointer, wait_count(), wait_list(), &event);
  if (event != nullptr) issued(event, {.name = "unmap"});
  check(status, "clEnqueueUnmapMemObject", device(), doing);
}

void Flight::flush() {
  check(clFlush(queue_()), "clFlush", device());
  if (queue_is_profiles_) precede_own_queue();
}

void Flight::keep(cl_mem memory) {
  for (const auto& kept : memories_) {
    if (kept() == memory) return;
  }
  memories_.emplace_back(memory, true);
}

void Flight::release() noexcept {
  memories_.clear();
  ranges_.clear();
  blocks_.clear();
  caller_events_.clear();
}

void Flight::run_checks() {
  const auto checks = std::exchange(checks_, {});
  for (const auto& check_one : checks) check_one();
}

FlightState::~FlightState() {
  // The driver's objects are the parent's, as those of its Runtime.
  if (!finished_ && Runtime::why_unusable()) static_cast<void>(flight_.release());
}

void FlightState::wait_once() {
  if (!finished_) {
    Runtime::require_usable("the call in flight");
    try {
      flight_->wait();
    } catch (const Error& error) {
      flight_->release();
      throw Error(ErrorCode::execution_failed,
                  std::string("the outputs of this call are unspecified: ") + error.what());
    }
    flight_->release();
  }
  flight_->run_checks();
}

cl_event FlightState::event() const noexcept { return finished_ ? nullptr : flight_->last(); }

}  // namespace tessera::opencl
