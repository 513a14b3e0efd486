// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/recorder.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace tessera::dispatch {
namespace {

/// Of some 100 bytes each, and as many in a trace's text, which viewers still open.
constexpr std::size_t max_spans = std::size_t{1} << 20;

int this_thread() noexcept {
  static std::atomic<int> count{0};
  thread_local const int number = count++;
  return number;
}

thread_local const CallRecord* current = nullptr;

}  // namespace

std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::size_t Recorder::begin_call(const std::string& operation) {
  RecordedCall call{.operation = operation};
  // "rms_norm.forward"; a caller's kernel has a name of any form, and no pass.
  const auto dot = operation.rfind('.');
  for (const auto pass :
       {Pass::forward, Pass::backward, Pass::value_and_grad, Pass::forward_partial}) {
    if (dot == std::string::npos || operation.substr(dot + 1) != to_string(pass)) continue;
    call.operation = operation.substr(0, dot);
    call.pass = to_string(pass);
  }
  const std::lock_guard lock(mutex_);
  recorded_.calls.push_back(std::move(call));
  return recorded_.calls.size() - 1;
}

void Recorder::served(std::size_t at, const Dispatch& dispatch) noexcept {
  const std::lock_guard lock(mutex_);
  auto& call = recorded_.calls[at];
  try {
    call.implementation = dispatch.implementation;
    call.schedule = dispatch.schedule;
    call.block_sizes = dispatch.block_sizes;
    call.knobs = dispatch.knobs;
  } catch (...) {
    // No memory for the names: the spans still are of that call.
  }
}

void Recorder::add(RecordedSpan span) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    if (recorded_.spans.size() < max_spans) {
      if (span.kind == ProfileKind::kernel || span.kind == ProfileKind::task) {
        recorded_.calls[span.call].has_work = true;
      }
      recorded_.spans.push_back(std::move(span));
      return;
    }
  } catch (...) {
    // No memory: counted below.
  }
  ++left_out_;
}

void Recorder::expect_work(std::size_t call) noexcept {
  const std::lock_guard lock(mutex_);
  recorded_.calls[call].has_work = true;
}

bool Recorder::lacks_work(std::size_t call) const noexcept {
  const std::lock_guard lock(mutex_);
  return !recorded_.calls[call].has_work && !recorded_.calls[call].implementation.empty();
}

void Recorder::note(const std::string& text) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    notes_.insert(text);
  } catch (...) {
    // No memory for a note.
  }
}

Recorded Recorder::recorded() const {
  const std::lock_guard lock(mutex_);
  return recorded_;
}

std::vector<std::string> Recorder::notes() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> notes(notes_.begin(), notes_.end());
  if (left_out_ > 0) {
    notes.push_back(std::to_string(left_out_) +
                    " spans are left out, for which there was no room; profile fewer calls");
  }
  return notes;
}

void CallRecord::add(RecordedSpan span) const noexcept {
  span.call = call_;
  span.thread = this_thread();
  recorder_->add(std::move(span));
}

const CallRecord* current_call() noexcept { return current; }

void Timed::end() const noexcept {
  try {
    call_->add({.kind = kind_, .name = name_, .begin = begin_, .end = now_ns()});
  } catch (...) {
    // No memory for the name.
  }
}

void parallel_for(ThreadPool& threads, const char* name, std::int64_t tasks,
                  const std::function<void(std::int64_t, int)>& body) {
  const CallRecord* const record = current_call();
  if (record == nullptr) return threads.parallel_for(tasks, body);
  threads.parallel_for(tasks, [&](std::int64_t task, int worker) {
    const Timed timed(record, ProfileKind::task, name);
    body(task, worker);
  });
}

std::shared_ptr<Recorder> Profiling::recorder() const {
  const std::lock_guard lock(mutex_);
  return recorder_;
}

bool Profiling::open(std::shared_ptr<Recorder> recorder) {
  const std::lock_guard lock(mutex_);
  if (recorder_ != nullptr) return false;
  recorder_ = std::move(recorder);
  is_open_ = true;
  return true;
}

void Profiling::close() noexcept {
  const std::lock_guard lock(mutex_);
  is_open_ = false;
  recorder_ = nullptr;
}

void CallScope::begin(std::shared_ptr<Recorder> recorder, const std::string& operation) {
  if (recorder == nullptr) return;  // it has ended meanwhile
  begin_ = now_ns();
  const std::size_t call = recorder->begin_call(operation);
  record_.emplace(std::move(recorder), call);
  outer_ = std::exchange(current, &*record_);
}

void CallScope::end() noexcept {
  current = outer_;
  RecordedSpan span{.kind = ProfileKind::call, .begin = begin_, .end = now_ns()};
  // What has no tasks of the pool's is one itself: the textbook, the tile machine, a caller's
  // function.
  if (record_->lacks_work()) {
    RecordedSpan task = span;
    task.kind = ProfileKind::task;
    record_->add(std::move(task));
  }
  record_->add(std::move(span));
}

}  // namespace tessera::dispatch
