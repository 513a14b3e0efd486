// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "host/operators/request.hpp"

namespace tessera::operators {

/// A row of an operator of no kind that runs on the host and allocates what it needs: the caller's
/// bound on its memory is checked, a lent block is not used.
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
