// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace tessera::dispatch {

/// A number that a forked child does not share with its parent. Threads, and the state of drivers,
/// stay with the process that made them.
inline std::int64_t this_process() noexcept {
#if defined(__unix__) || defined(__APPLE__)
  return getpid();
#else
  return 0;  // nothing forks
#endif
}

}  // namespace tessera::dispatch
