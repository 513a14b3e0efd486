// SPDX-License-Identifier: Apache-2.0
#include "programs/progress.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace tessera::programs {

Progress::Progress(std::string program, std::string text, std::chrono::milliseconds first,
                   std::chrono::milliseconds later)
    : program_(std::move(program)),
      text_(std::move(text)),
      thread_([this, first, later] { run(first, later); }) {}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Progress::run(std::chrono::milliseconds first, std::chrono::milliseconds later) {
  const auto start = std::chrono::steady_clock::now();
  auto next = start + first;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_until(lock, next, [this] { return done_; })) {
    const auto seconds = std::chrono::duration<double>(next - start).count();
    fmt::print(stderr, "{}: {:.0f} s: {}\n", program_, seconds, text_);
    next += later;
  }
}

}  // namespace tessera::programs
