// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/dispatch/completion.hpp"
#include "host/dispatch/context_state.hpp"
#include "host/dispatch/knobs.hpp"
#include "tessera/cost_estimate.hpp"
#include "tessera/execution.hpp"

/// The ordered table of DESIGN section 4, which knows no operator.
namespace tessera::dispatch {

/// What `run` shares with the table while it tries one implementation.
struct Attempt {
  /// Set just before the first command that writes a caller's buffer is enqueued. From then on a
  /// failure is `execution_failed` and no other implementation may run.
  bool outputs_touched = false;
  /// What to report; `run` fills implementation, schedule, device, blocks, knobs and bytes. The
  /// table adds refusals and warnings.
  Dispatch dispatch{};
};

/// What the table asks of a call.
class Request {
 public:
  virtual std::string operation() const = 0;  ///< "linear_cross_entropy.forward"
  /// "loss, lse, grad_w": the views given, for messages.
  virtual std::string output_names() const = 0;
  virtual const std::vector<std::string>& implementation_names() const = 0;
  virtual const std::vector<NamedValue>& knobs() const = 0;  ///< those given

 protected:
  ~Request() = default;
};

/// One row: an implementation of one operator.
class Implementation {
 public:
  explicit Implementation(ImplementationInfo info) : info_(std::move(info)) {}
  virtual ~Implementation() = default;

  /// Name ("opencl.cpu"; a caller's "opencl" means every row under it), description, and whether it
  /// is part of the default order or runs only when named.
  const ImplementationInfo& info() const noexcept { return info_; }
  const std::string& name() const noexcept { return info_.name; }
  virtual bool is_built() const noexcept { return true; }

  /// Nothing: it would run. Cheap: no compilation of the request's own kernels. Illegal block sizes
  /// given by the caller throw Error invalid_argument from `run` and `plan`, not from here.
  virtual std::optional<std::string> why_unsupported(ContextState& /*state*/,
                                                     const Request& /*request*/) const {
    return std::nullopt;
  }
  virtual std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                                 const Request& request,
                                                 Attempt& attempt) const = 0;
  /// What `run` would use; compiles what it needs.
  virtual Plan plan(ContextState& state, const Request& request) const = 0;
  /// The block sizes `run` would use and where they come from, without compiling anything.
  virtual std::pair<std::vector<NamedValue>, BlockSource> infer(ContextState& state,
                                                                const Request& request) const = 0;
  /// What `run` costs, without compiling anything.
  virtual CostEstimate cost(ContextState& state, const Request& request) const = 0;
  /// Whether `run` and `plan` take ExecutionOptions::knobs into account. False: only what they
  /// report anyway may be given.
  virtual bool sets_knobs() const noexcept { return false; }
  /// What can be given, the best first; empty: its knobs follow from the call.
  virtual std::vector<Choice> choices(ContextState& /*state*/, const Request& /*request*/) const {
    return {};
  }
  /// What `plan` reports, without compiling anything.
  virtual Dispatch foresee(ContextState& state, const Request& request) const {
    return plan(state, request).dispatch;
  }
  /// By what names tuned tables know the device that it runs on, and its class. Empty: the host.
  virtual std::pair<std::string, std::string> tuned_names(const ContextState& /*state*/) const {
    return {};
  }
  /// Blocks of a table's row, which come from other extents, as near as the request's allow; what
  /// was changed, and by which rule, is added to `changes`, each behind "; ".
  virtual std::vector<NamedValue> fitted(const ContextState& /*state*/, const Request& /*request*/,
                                         std::vector<NamedValue> blocks,
                                         std::string& /*changes*/) const {
    return blocks;
  }

 private:
  ImplementationInfo info_;
};

using Table = std::vector<std::unique_ptr<const Implementation>>;

/// The rows that a list of names selects, in the order to try them. Throws Error invalid_argument
/// for an unknown name, listing the known ones.
std::vector<const Implementation*> select_rows(const Table& table,
                                               const std::vector<std::string>& names);

/// Tries the rows in order and returns the first that serves the request.
std::unique_ptr<Completion::State> run(const Table& table,
                                       const std::shared_ptr<ContextState>& state,
                                       const Request& request);
/// What `run` would use, without running it: the first row that plans the request, with the
/// refusals before it; throws as `run` would. No warnings: nothing has fallen back yet.
Plan plan(const Table& table, ContextState& state, const Request& request);
/// Why the rows under `name` would not serve the request; nothing: one of them would.
std::optional<std::string> why_unsupported(const Table& table, ContextState& state,
                                           const Request& request, const std::string& name);
/// The first row that would serve the request, without planning it; throws as `run` would.
const Implementation& choose(const Table& table, ContextState& state, const Request& request);
/// The rows of a table that are compiled in, in its order.
std::vector<ImplementationInfo> list(const Table& table);
/// A row for a name that this build leaves out, so that a list that prefers it falls back with its
/// reason instead of being an unknown name. `by_default`: so does the default order.
std::unique_ptr<const Implementation> left_out(const std::string& name, const std::string& reason,
                                               bool by_default = false);

}  // namespace tessera::dispatch
