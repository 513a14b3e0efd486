// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/opencl.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "host/dispatch/recorder.hpp"

namespace tessera::opencl {

/// What a profile calls a command.
struct Command {
  ProfileKind kind = ProfileKind::copy;
  std::string_view name{};
  const std::size_t* global = nullptr;  ///< three work sizes of a kernel
  const std::size_t* local = nullptr;   ///< nullptr: the driver's choice
};

/// The commands of a call that is recorded, until they have run. Throws nothing into the call.
class FlightRecord {
 public:
  /// `keeps_times`: the queue was made with profiling.
  FlightRecord(dispatch::CallRecord call, bool keeps_times);
  const dispatch::CallRecord& call() const noexcept { return call_; }
  /// Before a command is enqueued.
  void before() noexcept { before_ = dispatch::now_ns(); }
  void issued(cl_event event, const Command& command) noexcept;
  /// Hands the times of commands that have run to the profile, and forgets all.
  void collect() noexcept;

 private:
  struct Issued {
    cl::Event event;
    dispatch::RecordedSpan span;
    std::int64_t before;
  };
  dispatch::CallRecord call_;
  bool keeps_times_;
  std::int64_t before_ = 0;
  std::vector<Issued> commands_;
};

}  // namespace tessera::opencl
