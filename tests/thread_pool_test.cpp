// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/forked.hpp"

namespace tessera::dispatch {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (std::int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      pool.parallel_for(tasks, [&](std::int64_t task, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        runs[static_cast<std::size_t>(task)].fetch_add(1);
      });
      for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, ZeroMeansOnePerHardwareThread) {
  ThreadPool pool(0);
  const auto hardware = std::thread::hardware_concurrency();
  EXPECT_EQ(pool.size(), hardware == 0 ? 1 : static_cast<int>(hardware));
}

TEST(ThreadPool, WritesOfTasksAreSeenByTheCaller) {
  // Plain ints: a missing happens-before edge is a report under the thread sanitizer.
  ThreadPool pool(4);
  std::vector<int> values(512, 0);
  for (int round = 1; round <= 50; ++round) {
    pool.parallel_for(
        512, [&](std::int64_t task, int) { values[static_cast<std::size_t>(task)] += round; });
  }
  for (int value : values) EXPECT_EQ(value, 50 * 51 / 2);
}

TEST(ThreadPool, NoTwoConcurrentTasksShareAWorker) {
  ThreadPool pool(4);
  std::vector<int> scratch(4, 0);  // unguarded: the worker index is the guard
  std::vector<std::atomic<bool>> busy(4);
  std::atomic<int> clashes{0};
  pool.parallel_for(2000, [&](std::int64_t, int worker) {
    const auto w = static_cast<std::size_t>(worker);
    if (busy[w].exchange(true)) ++clashes;
    ++scratch[w];
    busy[w] = false;
  });
  EXPECT_EQ(clashes, 0);
  EXPECT_EQ(scratch[0] + scratch[1] + scratch[2] + scratch[3], 2000);
}

TEST(ThreadPool, RethrowsAfterTheRestHaveStopped) {
  ThreadPool pool(3);
  std::atomic<int> inside{0};
  std::atomic<int> ran{0};
  for (int round = 0; round < 20; ++round) {
    ran = 0;
    try {
      pool.parallel_for(10000, [&](std::int64_t task, int) {
        ++inside;
        ++ran;
        if (task == 5) {
          --inside;
          throw std::runtime_error("task 5");
        }
        --inside;
      });
      FAIL() << "the exception was lost";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "task 5");
    }
    EXPECT_EQ(inside, 0);
  }
  // A failure leaves the pool as it was.
  pool.parallel_for(10, [&](std::int64_t, int) { ++ran; });
  EXPECT_GE(ran, 10);
}

TEST(ThreadPool, RethrowsWithoutHelpers) {
  ThreadPool pool(1);
  EXPECT_THROW(pool.parallel_for(3, [](std::int64_t, int) { throw std::logic_error("x"); }),
               std::logic_error);
}

TEST(ThreadPool, NestedCallsFinish) {
  ThreadPool pool(3);
  std::atomic<int> inner{0};
  pool.parallel_for(8, [&](std::int64_t, int) {
    pool.parallel_for(16, [&](std::int64_t, int worker) {
      ASSERT_LT(worker, 3);
      ++inner;
    });
  });
  EXPECT_EQ(inner, 8 * 16);
}

TEST(ThreadPool, CallsFromSeveralThreadsAreApart) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::vector<std::int64_t> sums(8, 0);
  for (std::size_t c = 0; c < sums.size(); ++c) {
    callers.emplace_back([&, c] {
      for (int round = 0; round < 50; ++round) {
        std::vector<std::int64_t> per_worker(3, 0);
        pool.parallel_for(64, [&](std::int64_t task, int worker) {
          per_worker[static_cast<std::size_t>(worker)] += task;
        });
        for (auto sum : per_worker) sums[c] += sum;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  for (auto sum : sums) EXPECT_EQ(sum, 50 * 63 * 64 / 2);
}

TEST(ThreadPool, HelpersTakePart) {
  ThreadPool pool(2);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> arrived{0};
  // Each task waits until both threads hold one: possible only when two run at once.
  pool.parallel_for(2, [&](std::int64_t, int) {
    {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    }
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(seen.size(), 2u);
}

/// A forked child has none of its parent's threads.
TEST(ThreadPool, AForkedChildHasThreadsOfItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer follows no forked child of a process with threads";
#endif
  ThreadPool pool(2);
  const auto meet = [&pool] {
    std::atomic<int> arrived{0};
    pool.parallel_for(2, [&](std::int64_t, int) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
    return 0;
  };
  meet();
  EXPECT_EQ(test::status_of_child([&] { return meet() + test::status_of_child(meet); }), 0);
  meet();
}

TEST(ThreadPool, ConstructionStartsNoThread) {
  // Joining what never started would hang or crash; with TSan a thread would be counted as leaked.
  for (int i = 0; i < 1000; ++i) ThreadPool pool(64);
}

}  // namespace
}  // namespace tessera::dispatch
