// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/warnings.hpp"

#include <cstdio>
#include <utility>

namespace tessera::dispatch {

WarningLog::WarningLog(WarningHandler handler) : handler_(std::move(handler)) {
  if (!handler_) {
    handler_ = [](const std::string& message) { std::fprintf(stderr, "%s\n", message.c_str()); };
  }
}

void WarningLog::warn(const std::string& message) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!seen_.insert(message).second) return;
    }
    handler_(message);
  } catch (...) {
    // Out of memory for the set, or the handler threw: a warning is not worth a failed call.
  }
}

}  // namespace tessera::dispatch
