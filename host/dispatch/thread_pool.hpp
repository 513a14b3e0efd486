// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace tessera::dispatch {

/// Threads for work on the host, shared by every call on one Context.
///
/// The caller of parallel_for works too, so a pool of one thread starts none. Calls from several
/// threads at once are safe; each makes progress with its own thread alone if the rest are busy.
/// Threads start with the first parallel_for; a forked child has its own, not its parent's.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  ///< 0: one per hardware thread
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const noexcept;  ///< threads, the caller's included

  /// Runs body(task, worker) for task 0 .. tasks-1, each once, in any order; `worker` is in
  /// [0, size()) and no two concurrent tasks of this call share it. Returns when all are done.
  /// Rethrows the first exception a task threw, after the rest have stopped.
  void parallel_for(std::int64_t tasks,
                    const std::function<void(std::int64_t task, int worker)>& body);

 private:
  struct Impl;
  /// This process's.
  Impl& here();

  std::atomic<Impl*> impl_;
};

}  // namespace tessera::dispatch
