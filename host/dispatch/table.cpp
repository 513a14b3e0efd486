// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/table.hpp"

#include <algorithm>
#include <new>

#include "host/dispatch/knobs.hpp"

namespace tessera::dispatch {

namespace {

/// "opencl" selects "opencl" and "opencl.cpu", not "opencl2".
bool selects(const std::string& name, const std::string& row) {
  return row == name || (row.size() > name.size() && row.compare(0, name.size(), name) == 0 &&
                         row[name.size()] == '.');
}

/// Whether the caller left it open which of two rows of a family runs, and named not just `a`.
bool are_one_choice(const std::vector<std::string>& names, const std::string& a,
                    const std::string& b) {
  if (names.empty()) return selects(a.substr(0, a.find('.')), b);
  if (std::find(names.begin(), names.end(), a) != names.end()) return false;
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return selects(name, a) && selects(name, b); });
}

std::string known_names(const Table& table) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const auto& row : table) {
    const std::string& name = row->name();
    // Every prefix up to a dot is a name too.
    for (auto dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      add(name.substr(0, dot));
    }
    add(name);
  }
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string reasons(const Dispatch& dispatch) {
  std::string text;
  for (const auto& refusal : dispatch.refused) {
    text += (text.empty() ? "" : "; ") + refusal.implementation + ": " + refusal.reason;
  }
  return text;
}

/// True when a failure with this code lets the next row try, as long as no output was touched.
bool may_fall_back(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::unsupported:
    case ErrorCode::build_failed:
    case ErrorCode::out_of_memory:
    case ErrorCode::execution_failed:  // the device failed before it wrote anything of the caller's
      return true;
    case ErrorCode::invalid_argument:
    case ErrorCode::foreign_context:
    case ErrorCode::label_out_of_range:
    case ErrorCode::workspace_too_small:
    case ErrorCode::device_not_found:
      return false;
  }
  return false;
}

/// The one error when every row refused: each name with its reason.
[[noreturn]] void throw_all_refused(const std::string& operation, const Dispatch& dispatch,
                                    ErrorCode code) {
  if (dispatch.refused.empty()) {
    throw Error(ErrorCode::unsupported, operation + ": no implementation is compiled in");
  }
  throw Error(code, operation + ": every implementation refused: " + reasons(dispatch));
}

/// Records a refusal and its warning ("tessera: NAME refused OPERATION: REASON; trying NEXT").
void record_refusal(ContextState& state, Dispatch& dispatch, const std::string& operation,
                    const std::string& name, const std::string& reason, const std::string& next) {
  dispatch.refused.push_back({name, reason});
  // The last refusal becomes part of the error; a warning beside it would say the same twice.
  if (next.empty()) return;
  const std::string message =
      "tessera: " + name + " refused " + operation + ": " + reason + "; trying " + next;
  dispatch.warnings.push_back(message);
  state.warnings.warn(message);
}

/// Turns a failure after outputs were touched into `execution_failed`, naming them.
[[noreturn]] void throw_execution_failed(const std::string& name, const std::string& outputs,
                                         const std::exception& cause) {
  std::string log;
  if (const auto* error = dynamic_cast<const Error*>(&cause)) log = error->build_log();
  throw Error(ErrorCode::execution_failed,
              name + " failed after it began to write; unspecified now: " + outputs +
                  "; the context stays usable; cause: " + cause.what(),
              log);
}

/// What `serve(row)` returns for the first row that serves the request. `refused(row, reason,
/// next)` hears of those before it. `is_final`: a failure of `serve` is the call's own.
template <class Serve, class Refused>
auto first_that_serves(const Table& table, ContextState& state, const Request& request,
                       Dispatch& refusals, const bool& is_final, const Serve& serve,
                       const Refused& refused) {
  const auto order = select_rows(table, request.implementation_names());
  // With one row there is nothing to fall back to: its own error.
  const bool pinned = request.implementation_names().size() <= 1 && order.size() == 1;
  ErrorCode last_code = ErrorCode::unsupported;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& row = *order[i];
    const auto refuse = [&](ErrorCode code, const std::string& reason) {
      last_code = code;
      refused(row, reason, i + 1 < order.size() ? order[i + 1]->name() : std::string());
    };
    if (const auto reason = row.why_unsupported(state, request)) {
      if (pinned) {
        throw Error(ErrorCode::unsupported,
                    request.operation() + ": " + row.name() + " cannot run it: " + *reason);
      }
      last_code = ErrorCode::unsupported;
      const bool has_next = i + 1 < order.size();
      // An engine that is not for the device, or not for the types, is no failure of its family.
      const bool is_silent = !has_next || are_one_choice(request.implementation_names(), row.name(),
                                                         order[i + 1]->name());
      refused(row, *reason, is_silent ? std::string() : order[i + 1]->name());
      continue;
    }
    try {
      return serve(row);
    } catch (const Error& error) {
      if (pinned || is_final || !may_fall_back(error.code())) throw;
      refuse(error.code(), error.what());
    } catch (const std::bad_alloc&) {
      const Error error(ErrorCode::out_of_memory,
                        row.name() + " ran out of host memory; lower workspace_bytes");
      if (pinned) throw error;
      refuse(error.code(), error.what());
    }
  }
  throw_all_refused(request.operation(), refusals, last_code);
}

/// A row of which there is nothing but the reason.
class LeftOut final : public Implementation {
 public:
  LeftOut(const std::string& name, const std::string& reason, bool by_default)
      : Implementation({name, reason, by_default}) {}
  bool is_built() const noexcept override { return false; }
  std::optional<std::string> why_unsupported(ContextState&, const Request&) const override {
    return info().description;
  }
  std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>&, const Request&,
                                         Attempt&) const override {
    fail();
  }
  Plan plan(ContextState&, const Request&) const override { fail(); }
  std::pair<std::vector<NamedValue>, BlockSource> infer(ContextState&,
                                                        const Request&) const override {
    fail();
  }
  CostEstimate cost(ContextState&, const Request&) const override { fail(); }

 private:
  [[noreturn]] void fail() const { throw Error(ErrorCode::unsupported, info().description); }
};

}  // namespace

std::vector<const Implementation*> select_rows(const Table& table,
                                               const std::vector<std::string>& names) {
  std::vector<const Implementation*> order;
  if (names.empty()) {
    for (const auto& row : table) {
      if (row->info().by_default) order.push_back(row.get());
    }
    return order;
  }
  for (const auto& name : names) {
    bool known = false;
    for (const auto& row : table) {
      if (!selects(name, row->name())) continue;
      known = true;
      if (std::find(order.begin(), order.end(), row.get()) == order.end()) {
        order.push_back(row.get());
      }
    }
    if (!known) {
      throw Error(ErrorCode::invalid_argument,
                  "implementation: unknown name \"" + name + "\"; known are " + known_names(table));
    }
  }
  return order;
}

std::unique_ptr<Completion::State> run(const Table& table,
                                       const std::shared_ptr<ContextState>& state,
                                       const Request& request) {
  if (state->device && state->device->only_plans()) {
    throw Error(ErrorCode::unsupported,
                request.operation() + ": the Context was made to plan for " +
                    state->device->info().name +
                    ", which is not here; leave ContextOptions::plan_for empty to run calls");
  }
  const CallScope profiled(state->profiling, request);
  Dispatch refusals;
  Attempt attempt;
  const auto serve = [&](const Implementation& row) {
    attempt = {};
    attempt.dispatch.implementation = row.name();
    try {
      if (!request.knobs().empty() && !row.sets_knobs()) {
        check_knobs(request.knobs(), row.plan(*state, request).dispatch.knobs, row.name());
      }
      auto result = row.run(state, request, attempt);
      result->dispatch = std::move(attempt.dispatch);
      result->dispatch.refused = std::move(refusals.refused);
      for (auto& text : refusals.warnings) result->dispatch.warnings.push_back(std::move(text));
      result->context = state;
      profiled.served(result->dispatch);
      return result;
    } catch (const Error& error) {
      // A bad label in device memory is the request's fault, found late; the outputs are as section
      // 1 of the design says.
      if (!attempt.outputs_touched || error.code() == ErrorCode::label_out_of_range) throw;
      throw_execution_failed(row.name(), request.output_names(), error);
    } catch (const std::bad_alloc& error) {
      if (!attempt.outputs_touched) throw;
      throw_execution_failed(row.name(), request.output_names(), error);
    }
  };
  const auto refused = [&](const Implementation& row, const std::string& reason,
                           const std::string& next) {
    record_refusal(*state, refusals, request.operation(), row.name(), reason, next);
  };
  return first_that_serves(table, *state, request, refusals, attempt.outputs_touched, serve,
                           refused);
}

Plan plan(const Table& table, ContextState& state, const Request& request) {
  Dispatch refusals;
  const auto serve = [&](const Implementation& row) {
    auto result = row.plan(state, request);
    if (result.dispatch.implementation.empty()) result.dispatch.implementation = row.name();
    check_knobs(request.knobs(), result.dispatch.knobs, row.name());
    result.dispatch.refused = std::move(refusals.refused);
    return result;
  };
  const auto refused = [&](const Implementation& row, const std::string& reason,
                           const std::string&) {
    refusals.refused.push_back({row.name(), reason});
  };
  return first_that_serves(table, state, request, refusals, false, serve, refused);
}

std::optional<std::string> why_unsupported(const Table& table, ContextState& state,
                                           const Request& request, const std::string& name) {
  const auto order = select_rows(table, {name});
  std::string reasons;
  for (const auto* row : order) {
    auto reason = row->why_unsupported(state, request);
    if (!reason) return std::nullopt;
    if (order.size() == 1) return reason;
    reasons += (reasons.empty() ? "" : "; ") + row->name() + ": " + *reason;
  }
  return reasons;
}

const Implementation& choose(const Table& table, ContextState& state, const Request& request) {
  Dispatch refusals;
  for (const auto* row : select_rows(table, request.implementation_names())) {
    auto reason = row->why_unsupported(state, request);
    if (!reason) return *row;
    refusals.refused.push_back({row->name(), *reason});
  }
  throw_all_refused(request.operation(), refusals, ErrorCode::unsupported);
}

std::vector<ImplementationInfo> list(const Table& table) {
  std::vector<ImplementationInfo> result;
  for (const auto& row : table) {
    if (row->is_built()) result.push_back(row->info());
  }
  return result;
}

std::unique_ptr<const Implementation> left_out(const std::string& name, const std::string& reason,
                                               bool by_default) {
  return std::make_unique<LeftOut>(name, reason, by_default);
}

}  // namespace tessera::dispatch
