// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/thread_pool.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "host/dispatch/process.hpp"

namespace tessera::dispatch {

namespace {

/// One parallel_for in flight; lives on its caller's stack. Every member is guarded by the pool's
/// mutex: tasks are blocks of matrix work, so that taking one under a lock costs nothing.
struct Job {
  const std::function<void(std::int64_t, int)>& body;
  std::int64_t tasks;
  std::int64_t next = 0;
  int helpers = 0;  ///< pool threads inside the job
  std::exception_ptr failure{};
  std::condition_variable left{};  ///< signalled when the last helper leaves
};

int resolve(int threads) {
  if (threads > 0) return threads;
  const auto hardware = static_cast<int>(std::thread::hardware_concurrency());
  return hardware > 0 ? hardware : 1;
}

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int wanted) : size(resolve(wanted)) {}

  const int size;
  const std::int64_t process = this_process();
  std::mutex mutex;
  std::condition_variable work;
  std::list<Job*> jobs;  ///< those with tasks left to take
  std::vector<std::thread> threads;
  bool started = false;
  bool stopping = false;

  void start() {
    started = true;
    try {
      threads.reserve(static_cast<std::size_t>(size - 1));
      for (int worker = 1; worker < size; ++worker) {
        threads.emplace_back([this, worker] { serve(worker); });
      }
    } catch (const std::system_error&) {
      // The system has no more threads: those that started, and the callers, do the work.
    }
  }

  /// Takes tasks until none is left. Holds `lock` on entry and on return.
  void take_tasks(std::unique_lock<std::mutex>& lock, Job& job, int worker) {
    while (job.next < job.tasks) {
      const std::int64_t task = job.next++;
      if (job.next == job.tasks) jobs.remove(&job);
      lock.unlock();
      std::exception_ptr failure;
      try {
        job.body(task, worker);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) {
        if (!job.failure) job.failure = failure;
        job.next = job.tasks;
        jobs.remove(&job);
      }
    }
  }

  void serve(int worker) {
    std::unique_lock lock(mutex);
    for (;;) {
      work.wait(lock, [&] { return stopping || !jobs.empty(); });
      if (stopping) return;
      Job& job = *jobs.front();
      ++job.helpers;
      // The next helper prefers another job, so that concurrent calls share the pool.
      jobs.splice(jobs.end(), jobs, jobs.begin());
      take_tasks(lock, job, worker);
      if (--job.helpers == 0) job.left.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(new Impl(threads)) {}

ThreadPool::~ThreadPool() {
  // The parent's threads are not in a forked child.
  if (impl_.load()->process != this_process()) return;
  const std::unique_ptr<Impl> impl(impl_.load());
  {
    const std::lock_guard lock(impl->mutex);
    impl->stopping = true;
  }
  impl->work.notify_all();
  for (auto& thread : impl->threads) thread.join();
}

ThreadPool::Impl& ThreadPool::here() {
  Impl* known = impl_.load();
  while (known->process != this_process()) {
    // The parent's stays as it is: its threads are not here, and its mutex may be held by one.
    auto own = std::make_unique<Impl>(known->size);
    if (impl_.compare_exchange_strong(known, own.get())) return *own.release();
  }
  return *known;
}

int ThreadPool::size() const noexcept { return impl_.load()->size; }

void ThreadPool::parallel_for(std::int64_t tasks,
                              const std::function<void(std::int64_t, int)>& body) {
  Impl& impl = here();
  if (impl.size == 1 || tasks <= 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  Job job{.body = body, .tasks = tasks};
  std::unique_lock lock(impl.mutex);
  if (!impl.started) impl.start();
  impl.jobs.push_back(&job);
  // One helper per task beyond the caller's own; waking more would only make them look and sleep.
  const std::int64_t helpers = std::min<std::int64_t>(tasks - 1, impl.size - 1);
  for (std::int64_t i = 0; i < helpers; ++i) impl.work.notify_one();
  // The caller is worker 0. No pool thread is: they are 1 .. size-1, each in one job at a time, and
  // a pool thread that calls in from a task of another job is worker 0 of its own job only.
  impl.take_tasks(lock, job, 0);
  job.left.wait(lock, [&] { return job.helpers == 0; });
  if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace tessera::dispatch
