// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include "host/dispatch/process.hpp"
#include "tessera/execution.hpp"

namespace tessera {

/// What a Completion waits for. An implementation that finishes before it returns uses this class
/// as it is; an asynchronous one derives from it.
class Completion::State {
 public:
  State() = default;
  virtual ~State() = default;

  /// Blocks until done and throws what failed; called at most once.
  virtual void wait_once() {}
  virtual cl_event event() const noexcept { return nullptr; }

  Dispatch dispatch{};
  /// Where an error that nobody saw goes; kept alive for as long as the call may need it.
  std::shared_ptr<ContextState> context{};

  // Completion's own bookkeeping.
  const std::int64_t process = dispatch::this_process();
  bool waited = false;
  std::exception_ptr failure{};
};

}  // namespace tessera
