// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "host/operators/request.hpp"

namespace tessera::operators {

/// An implementation that runs on the host and allocates what it needs, for an operator that is no
/// loss. It checks the caller's bound on memory but does not use a lent block.
class HostImplementation : public dispatch::Implementation {
 public:
  using Implementation::Implementation;

  std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                         const dispatch::Request& request,
                                         dispatch::Attempt& attempt) const final;
  Plan plan(ContextState& state, const dispatch::Request& request) const final;
  std::pair<std::vector<NamedValue>, BlockSource> infer(
      ContextState& state, const dispatch::Request& request) const final;

 protected:
  /// Everything but the bytes that are only known when the call runs. `why_unsupported` was asked.
  virtual void describe(const ContextState& state, const Request& request,
                        Dispatch& dispatch) const = 0;
  /// The call, on host views.
  virtual void compute(ContextState& state, const Request& request, Dispatch& dispatch) const = 0;

 private:
  Dispatch described(const ContextState& state, const dispatch::Request& request) const;
};

}  // namespace tessera::operators
