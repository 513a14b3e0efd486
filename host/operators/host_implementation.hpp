// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "host/operators/request.hpp"

namespace tessera::operators {

/// An implementation that runs on the host, for an operator that is no loss. It computes in a block
/// of scratch memory, the caller's or the context's, or allocates for itself; then it checks the
/// caller's bound but does not use a lent block.
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
  /// The least scratch memory that serves the call; nothing: it allocates for itself.
  virtual std::optional<std::int64_t> minimum_workspace_bytes(const ContextState&,
                                                              const Request&) const {
    return std::nullopt;
  }
  /// Everything, the bytes of scratch memory too, but what is only known when the call runs. Throws
  /// Error workspace_too_small where it computes in a block. `why_unsupported` was asked.
  virtual void describe(const ContextState& state, const Request& request,
                        Dispatch& dispatch) const = 0;
  /// Throws Error for a value that was in device memory when the call was checked. The views are in
  /// host memory.
  virtual void check_values(const ContextState&, const Request&) const {}
  /// The call, on host views. `workspace` is null where it allocates for itself.
  virtual void compute(ContextState& state, const Request& request, Dispatch& dispatch,
                       void* workspace) const = 0;

 private:
  Dispatch described(const ContextState& state, const dispatch::Request& request) const;
};

}  // namespace tessera::operators
