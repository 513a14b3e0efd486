// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <unordered_set>

#include "tessera/context.hpp"

namespace tessera::dispatch {

/// Hands each distinct message to the handler once, on the calling thread, outside the lock.
class WarningLog {
 public:
  explicit WarningLog(WarningHandler handler);  ///< empty: one line to stderr
  /// A handler that throws is ignored: a warning never turns into a failure.
  void warn(const std::string& message) noexcept;

 private:
  WarningHandler handler_;
  std::mutex mutex_;
  std::unordered_set<std::string> seen_;
};

}  // namespace tessera::dispatch
