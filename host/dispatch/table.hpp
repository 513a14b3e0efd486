// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/dispatch/completion.hpp"
#include "host/dispatch/context_state.hpp"
#include "host/dispatch/knobs.hpp"
#include "tessera/cost_estimate.hpp"
#include "tessera/execution.hpp"

/// The ordered table of DESIGN section 4, generic over an operator's request.
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

/// One row: an implementation of one operator.
template <class Request>
struct Implementation {
  std::string name;         ///< "opencl.cpu"; a caller's "opencl" means every row under it
  std::string description;  ///< one line
  bool by_default = true;   ///< false: runs only when named
  /// Nothing: it would run. Cheap: no compilation of the request's own kernels. Illegal block sizes
  /// given by the caller throw Error invalid_argument from `run` and `plan`, not from here.
  std::function<std::optional<std::string>(ContextState&, const Request&)> why_unsupported;
  std::function<std::unique_ptr<Completion::State>(const std::shared_ptr<ContextState>&,
                                                   const Request&, Attempt&)>
      run;
  /// What `run` would use; compiles what it needs.
  std::function<Plan(ContextState&, const Request&)> plan;
  /// The block sizes `run` would use and where they come from, without compiling anything. Not set:
  /// the caller's, or BlockSizes::get_default().
  std::function<std::pair<typename Request::Blocks, BlockSource>(ContextState&, const Request&)>
      infer{};
  /// What `run` costs, without compiling anything. Not set: what the operator itself says of the
  /// block sizes.
  std::function<CostEstimate(ContextState&, const Request&)> cost{};
  /// Whether `run` and `plan` take ExecutionOptions::knobs into account. False: only what they
  /// report anyway may be given.
  bool sets_knobs = false;
};

template <class Request>
using Table = std::vector<Implementation<Request>>;

/// The non-generic half of the table: names and the wording of refusals.
struct RowName {
  std::string name;
  bool by_default;
};
/// Indices of the rows a list of names selects, in the order to try them. Throws Error
/// invalid_argument for an unknown name, listing the known ones.
std::vector<std::size_t> select_rows(const std::vector<RowName>& rows,
                                     const std::vector<std::string>& names);
/// True when a failure with this code lets the next row try (before outputs were touched).
bool may_fall_back(ErrorCode code) noexcept;
/// The error when the one implementation that was asked for refuses.
[[noreturn]] void throw_pinned(const std::string& operation, const std::string& name,
                               const std::string& reason);
/// The one error when every row refused: each name with its reason.
[[noreturn]] void throw_all_refused(const std::string& operation, const Dispatch& dispatch,
                                    ErrorCode code);
/// Records a refusal and its warning ("tessera: NAME refused OPERATION: REASON; trying NEXT").
void record_refusal(ContextState& state, Dispatch& dispatch, const std::string& operation,
                    const std::string& name, const std::string& reason, const std::string& next);
/// Turns a failure after outputs were touched into `execution_failed`, naming them.
[[noreturn]] void throw_execution_failed(const std::string& name, const std::string& outputs,
                                         const std::exception& cause);

template <class Request>
std::vector<RowName> row_names(const Table<Request>& table) {
  std::vector<RowName> names;
  for (const auto& row : table) names.push_back({row.name, row.by_default});
  return names;
}

/// Tries the rows in order and returns the first that serves the request.
/// `Request` gives: `Blocks` (its BlockSizes), `operation()` ("linear_cross_entropy.forward"),
/// `implementation_names()`, `knobs()` (those given), and `output_names()` (comma-separated, for
/// execution_failed).
template <class Request>
std::unique_ptr<Completion::State> run(const Table<Request>& table,
                                       const std::shared_ptr<ContextState>& state,
                                       const Request& request) {
  const auto order = select_rows(row_names(table), request.implementation_names());
  // With one name given and one row behind it there is nothing to fall back to: its own error.
  const bool pinned = request.implementation_names().size() == 1 && order.size() == 1;

  Dispatch refusals;
  ErrorCode last_code = ErrorCode::unsupported;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& row = table[order[i]];
    const std::string next = i + 1 < order.size() ? table[order[i + 1]].name : std::string();
    if (auto reason = row.why_unsupported(*state, request)) {
      last_code = ErrorCode::unsupported;
      if (pinned) throw_pinned(request.operation(), row.name, *reason);
      record_refusal(*state, refusals, request.operation(), row.name, *reason, next);
      continue;
    }
    Attempt attempt;
    attempt.dispatch.implementation = row.name;
    try {
      if (!request.knobs().empty() && !row.sets_knobs) {
        check_knobs(request.knobs(), row.plan(*state, request).dispatch.knobs, row.name);
      }
      auto result = row.run(state, request, attempt);
      result->dispatch = std::move(attempt.dispatch);
      result->dispatch.refused = std::move(refusals.refused);
      for (auto& text : refusals.warnings) result->dispatch.warnings.push_back(std::move(text));
      result->context = state;
      return result;
    } catch (const Error& error) {
      // A bad label in device memory is the request's fault, found late; the outputs are as section
      // 1 of the design says.
      if (error.code() == ErrorCode::label_out_of_range) throw;
      if (attempt.outputs_touched) {
        throw_execution_failed(row.name, request.output_names(), error);
      }
      if (pinned || !may_fall_back(error.code())) throw;
      last_code = error.code();
      record_refusal(*state, refusals, request.operation(), row.name, error.what(), next);
    } catch (const std::bad_alloc&) {
      if (attempt.outputs_touched) {
        throw_execution_failed(row.name, request.output_names(), std::bad_alloc());
      }
      const Error error(ErrorCode::out_of_memory,
                        row.name + " ran out of host memory; lower workspace_bytes");
      if (pinned) throw error;
      last_code = error.code();
      record_refusal(*state, refusals, request.operation(), row.name, error.what(), next);
    }
  }
  throw_all_refused(request.operation(), refusals, last_code);
}

/// What `run` would use, without running it: the first row that plans the request, with the
/// refusals before it; throws as `run` would. No warnings: nothing has fallen back yet.
template <class Request>
Plan plan(const Table<Request>& table, ContextState& state, const Request& request) {
  const auto order = select_rows(row_names(table), request.implementation_names());
  const bool pinned = request.implementation_names().size() == 1 && order.size() == 1;

  Dispatch refusals;
  ErrorCode last_code = ErrorCode::unsupported;
  for (auto index : order) {
    const auto& row = table[index];
    if (auto reason = row.why_unsupported(state, request)) {
      last_code = ErrorCode::unsupported;
      if (pinned) throw_pinned(request.operation(), row.name, *reason);
      refusals.refused.push_back({row.name, *reason});
      continue;
    }
    try {
      auto result = row.plan(state, request);
      if (result.dispatch.implementation.empty()) result.dispatch.implementation = row.name;
      check_knobs(request.knobs(), result.dispatch.knobs, row.name);
      result.dispatch.refused = std::move(refusals.refused);
      return result;
    } catch (const Error& error) {
      if (pinned || !may_fall_back(error.code())) throw;
      last_code = error.code();
      refusals.refused.push_back({row.name, error.what()});
    } catch (const std::bad_alloc&) {
      const Error error(ErrorCode::out_of_memory, row.name + " ran out of host memory planning");
      if (pinned) throw error;
      last_code = error.code();
      refusals.refused.push_back({row.name, error.what()});
    }
  }
  throw_all_refused(request.operation(), refusals, last_code);
}

/// Throws Error invalid_argument for a name that no row has.
template <class Request>
void require_name(const Table<Request>& table, const std::string& name) {
  select_rows(row_names(table), {name});
}

/// Why the rows under `name` would not serve the request; nothing: one of them would.
template <class Request>
std::optional<std::string> why_unsupported(const Table<Request>& table, ContextState& state,
                                           const Request& request, const std::string& name) {
  const auto order = select_rows(row_names(table), {name});
  std::string reasons;
  for (auto index : order) {
    auto reason = table[index].why_unsupported(state, request);
    if (!reason) return std::nullopt;
    if (order.size() == 1) return reason;
    reasons += (reasons.empty() ? "" : "; ") + table[index].name + ": " + *reason;
  }
  return reasons;
}

/// The first row that would serve the request, without planning it; throws as `run` would.
template <class Request>
const Implementation<Request>& choose(const Table<Request>& table, ContextState& state,
                                      const Request& request) {
  const auto order = select_rows(row_names(table), request.implementation_names());
  Dispatch refusals;
  for (auto index : order) {
    auto reason = table[index].why_unsupported(state, request);
    if (!reason) return table[index];
    refusals.refused.push_back({table[index].name, *reason});
  }
  throw_all_refused(request.operation(), refusals, ErrorCode::unsupported);
}

/// The rows of a table that are compiled in, in its order.
template <class Request>
std::vector<ImplementationInfo> list(const Table<Request>& table) {
  std::vector<ImplementationInfo> result;
  for (const auto& row : table) {
    if (row.run) result.push_back({row.name, row.description, row.by_default});
  }
  return result;
}

/// A row for a name that this build leaves out, so that a list that prefers it falls back with its
/// reason instead of being an unknown name. Never part of the default order.
template <class Request>
Implementation<Request> left_out(const std::string& name, const std::string& reason) {
  Implementation<Request> row;
  row.name = name;
  row.description = reason;
  row.by_default = false;
  row.why_unsupported = [reason](ContextState&, const Request&) { return reason; };
  return row;
}

}  // namespace tessera::dispatch
