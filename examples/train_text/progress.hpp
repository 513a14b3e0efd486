// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace train_text {

/// One line about the training, rewritten in place on a terminal; elsewhere (a log, CI) a line of
/// its own every ten seconds.
class Progress {
 public:
  Progress();
  /// `seconds`: since the start of the training.
  void show(const std::string& text, double seconds);
  /// A line that stays.
  void line(const std::string& text);

 private:
  bool terminal_ = false;
  std::size_t shown_ = 0;  ///< characters of the line that stands on the terminal
  double next_ = 0.0;
};

/// "1:05" for 65 seconds.
std::string clock(double seconds);

}  // namespace train_text
