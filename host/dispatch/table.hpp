// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/dispatch/completion.hpp"
#include "host/dispatch/context_state.hpp"
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
/// The one error when every row refused: each name with its reason.
[[noreturn]] void throw_all_refused(const std::string& operation, const Dispatch& dispatch,
                                    ErrorCode code);
/// Records a refusal and its warning ("tessera: NAME refused OPERATION: REASON; trying NEXT").
void record_refusal(ContextState& state, Dispatch& dispatch, const std::string& operation,
                    const std::string& name, const std::string& reason, const std::string& next);
/// Turns a failure after outputs were touched into `execution_failed`, naming them.
[[noreturn]] void throw_execution_failed(const std::string& name, const std::string& outputs,
                                         const std::exception& cause);

/// Tries the rows in order and returns the first that serves the request.
/// `Request` gives: `operation()` ("linear_cross_entropy.forward"), `implementation_names()`,
/// and `output_names()` (comma-separated, for execution_failed).
template <class Request>
std::unique_ptr<Completion::State> run(const Table<Request>& table,
                                       const std::shared_ptr<ContextState>& state,
                                       const Request& request) {
  std::vector<RowName> names;
  for (const auto& row : table) names.push_back({row.name, row.by_default});
  const auto order = select_rows(names, request.implementation_names());
  // With one name given and one row behind it there is nothing to fall back to: its own error.
  const bool pinned = request.implementation_names().size() == 1 && order.size() == 1;

  Dispatch refusals;
  ErrorCode last_code = ErrorCode::unsupported;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& row = table[order[i]];
    const std::string next = i + 1 < order.size() ? table[order[i + 1]].name : std::string();
    if (auto reason = row.why_unsupported(*state, request)) {
      last_code = ErrorCode::unsupported;
      if (pinned) {
        throw Error(ErrorCode::unsupported,
                    request.operation() + ": " + row.name + " cannot run it: " + *reason);
      }
      record_refusal(*state, refusals, request.operation(), row.name, *reason, next);
      continue;
    }
    Attempt attempt;
    attempt.dispatch.implementation = row.name;
    try {
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

/// The first row that would serve the request, without running it; throws as `run` would.
template <class Request>
const Implementation<Request>& choose(const Table<Request>& table, ContextState& state,
                                      const Request& request, Dispatch& refusals) {
  std::vector<RowName> names;
  for (const auto& row : table) names.push_back({row.name, row.by_default});
  for (auto index : select_rows(names, request.implementation_names())) {
    const auto& row = table[index];
    auto reason = row.why_unsupported(state, request);
    if (!reason) return row;
    refusals.refused.push_back({row.name, *reason});
  }
  throw_all_refused(request.operation(), refusals, ErrorCode::unsupported);
}

}  // namespace tessera::dispatch
