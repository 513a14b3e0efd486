// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace train_text {

Progress::Progress() : terminal_(isatty(fileno(stdout)) != 0) {}

void Progress::show(const std::string& text, double seconds) {
  if (seconds < next_) return;
  next_ = seconds + (terminal_ ? 0.1 : 10.0);
  if (terminal_) {
    // Blanks cover what a longer line before has left.
    fmt::print("\r{:<{}}", text, shown_);
    shown_ = text.size();
  } else {
    fmt::print("{}\n", text);
  }
  std::fflush(stdout);
}

void Progress::line(const std::string& text) {
  if (terminal_ && shown_ > 0) fmt::print("\r{:<{}}\r", "", shown_);
  shown_ = 0;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

std::string clock(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, seconds + 0.5));
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace train_text
