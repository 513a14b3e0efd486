// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::programs {

/// Says on stderr that work goes on, for as long as it lives: a first line after `first`, then one
/// every `later`. Quick work says nothing.
class Progress {
 public:
  /// `text` follows the name of the program and the seconds.
  Progress(std::string program, std::string text,
           std::chrono::milliseconds first = std::chrono::seconds(5),
           std::chrono::milliseconds later = std::chrono::seconds(30));
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void run(std::chrono::milliseconds first, std::chrono::milliseconds later);

  std::string program_, text_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace tessera::programs
