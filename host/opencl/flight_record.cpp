// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/flight_record.hpp"

#include <algorithm>
#include <limits>

namespace tessera::opencl {
namespace {

std::int64_t time_of(const cl::Event& event, cl_profiling_info what, bool& is_known) {
  cl_ulong value = 0;
  const cl_int status = clGetEventProfilingInfo(event(), what, sizeof(value), &value, nullptr);
  is_known = is_known && status == CL_SUCCESS && value != 0;
  return static_cast<std::int64_t>(value);
}

std::int64_t groups_of(const Command& command) {
  if (command.global == nullptr || command.local == nullptr) return 0;
  std::int64_t groups = 1;
  for (int axis = 0; axis < 3; ++axis) {
    groups *= static_cast<std::int64_t>(command.global[axis] / command.local[axis]);
  }
  return groups;
}

}  // namespace

FlightRecord::FlightRecord(dispatch::CallRecord call, bool keeps_times)
    : call_(std::move(call)), keeps_times_(keeps_times) {
  call_.expect_work();
  if (keeps_times_) return;
  call_.note(
      "calls ran on a caller's queue that keeps no times, so that their kernels are counted "
      "without them; make the queue with CL_QUEUE_PROFILING_ENABLE");
}

void FlightRecord::issued(cl_event event, const Command& command) noexcept {
  try {
    commands_.push_back({cl::Event(event, true),
                         {.kind = command.kind,
                          .name = std::string(command.name),
                          .is_timed = false,
                          .on_device = true,
                          .groups = groups_of(command)},
                         before_});
  } catch (...) {
    // No memory to remember it.
  }
}

void FlightRecord::collect() noexcept {
  // The device's clock has another zero. A command was queued after the moment before it was
  // enqueued, so that the largest of these differences is the nearest to the clocks' own, and no
  // command appears before its call began, nor after its end was seen.
  std::int64_t offset = std::numeric_limits<std::int64_t>::min();
  for (auto& [event, span, before] : commands_) {
    bool is_known = keeps_times_;
    if (!is_known) break;
    const std::int64_t queued = time_of(event, CL_PROFILING_COMMAND_QUEUED, is_known);
    span.begin = time_of(event, CL_PROFILING_COMMAND_START, is_known);
    span.end = time_of(event, CL_PROFILING_COMMAND_END, is_known);
    span.is_timed = is_known && span.begin <= span.end;
    if (span.is_timed) offset = std::max(offset, before - queued);
  }
  const std::int64_t now = dispatch::now_ns();
  for (auto& [event, span, before] : commands_) {
    if (span.is_timed) {
      // Clocks that differ in their speed may differ by more.
      span.end = std::min(span.end + offset, now);
      span.begin = std::min(span.begin + offset, span.end);
    }
    call_.add(std::move(span));
  }
  commands_.clear();
}

}  // namespace tessera::opencl
