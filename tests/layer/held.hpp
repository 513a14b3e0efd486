// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/cl.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "commands.hpp"
#include "control.hpp"

namespace tessera_layer {

/// Lets events that hold commands complete, one after another in a random order.
class Shuffler {
 public:
  ~Shuffler() {
    {
      std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  /// Takes a reference to the event over.
  void add(cl_event event, std::uint64_t seed) {
    std::lock_guard lock(mutex_);
    if (seed != seed_) random_.seed(seed_ = seed);
    waiting_.push_back(event);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      // Long enough for the commands behind it to be enqueued, most of the time.
      changed_.wait_for(lock, std::chrono::microseconds(random_() % 200), [&] { return ends_; });
      const auto at = static_cast<std::ptrdiff_t>(random_() % waiting_.size());
      const cl_event event = waiting_[static_cast<std::size_t>(at)];
      waiting_.erase(waiting_.begin() + at);
      lock.unlock();
      driver->clSetUserEventStatus(event, CL_COMPLETE);
      driver->clReleaseEvent(event);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<cl_event> waiting_;
  std::mt19937_64 random_;
  std::uint64_t seed_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

inline Shuffler& shuffler() {
  static Shuffler instance;
  return instance;
}

/// A command's wait list, with an event more where commands are held for a while.
class Held {
 public:
  Held(cl_command_queue queue, cl_uint count, const cl_event* list) : count_(count), list_(list) {
    std::uint64_t seed = 0;
    {
      std::lock_guard lock(control().mutex);
      seed = control().shuffle;
    }
    if (seed == 0) return;
    cl_context context = nullptr;
    driver->clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(context), &context, nullptr);
    cl_int status = CL_SUCCESS;
    const cl_event gate = driver->clCreateUserEvent(context, &status);
    if (status != CL_SUCCESS) return;
    more_.assign(list, list + count);
    more_.push_back(gate);
    driver->clRetainEvent(gate);
    gate_ = gate;
    // Before the command is enqueued: one that blocks would wait for ever.
    shuffler().add(gate, seed);
  }
  ~Held() {
    if (gate_ != nullptr) driver->clReleaseEvent(gate_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  cl_uint count() const { return more_.empty() ? count_ : static_cast<cl_uint>(more_.size()); }
  const cl_event* list() const { return more_.empty() ? list_ : more_.data(); }

 private:
  cl_uint count_;
  const cl_event* list_;
  std::vector<cl_event> more_;
  cl_event gate_ = nullptr;
};

}  // namespace tessera_layer
