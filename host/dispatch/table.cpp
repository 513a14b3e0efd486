// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/table.hpp"

#include <algorithm>

namespace tessera::dispatch {

namespace {

/// "opencl" selects "opencl" and "opencl.cpu", not "opencl2".
bool selects(const std::string& name, const std::string& row) {
  return row == name || (row.size() > name.size() && row.compare(0, name.size(), name) == 0 &&
                         row[name.size()] == '.');
}

std::string known_names(const std::vector<RowName>& rows) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const auto& row : rows) {
    // Every prefix up to a dot is a name too.
    for (auto dot = row.name.find('.'); dot != std::string::npos; dot = row.name.find('.', dot + 1))
      add(row.name.substr(0, dot));
    add(row.name);
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

}  // namespace

std::vector<std::size_t> select_rows(const std::vector<RowName>& rows,
                                     const std::vector<std::string>& names) {
  std::vector<std::size_t> order;
  if (names.empty()) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].by_default) order.push_back(i);
    }
    return order;
  }
  for (const auto& name : names) {
    bool known = false;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!selects(name, rows[i].name)) continue;
      known = true;
      if (std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
    }
    if (!known) {
      throw Error(ErrorCode::invalid_argument,
                  "implementation: unknown name \"" + name + "\"; known are " + known_names(rows));
    }
  }
  return order;
}

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

void throw_pinned(const std::string& operation, const std::string& name,
                  const std::string& reason) {
  throw Error(ErrorCode::unsupported, operation + ": " + name + " cannot run it: " + reason);
}

void throw_all_refused(const std::string& operation, const Dispatch& dispatch, ErrorCode code) {
  if (dispatch.refused.empty()) {
    throw Error(ErrorCode::unsupported, operation + ": no implementation is compiled in");
  }
  throw Error(code, operation + ": every implementation refused: " + reasons(dispatch));
}

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

void throw_execution_failed(const std::string& name, const std::string& outputs,
                            const std::exception& cause) {
  std::string log;
  if (const auto* error = dynamic_cast<const Error*>(&cause)) log = error->build_log();
  throw Error(ErrorCode::execution_failed,
              name + " failed after it began to write; unspecified now: " + outputs +
                  "; the context stays usable; cause: " + cause.what(),
              log);
}

}  // namespace tessera::dispatch
