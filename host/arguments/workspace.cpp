// SPDX-License-Identifier: Apache-2.0
#include "host/arguments/workspace.hpp"

#include <string>

namespace tessera::arguments {

void check_fixed_workspace(const char* who, std::optional<std::size_t> workspace_bytes,
                           const MutableView& workspace, std::int64_t needed) {
  const auto check = [&](const char* name, std::int64_t bytes) {
    if (bytes >= needed) return;
    throw Error(ErrorCode::workspace_too_small, std::string(name) + " is " + std::to_string(bytes) +
                                                    " bytes, and " + who + " needs " +
                                                    std::to_string(needed) +
                                                    "; raise it, or use another implementation");
  };
  // First: its size bounds the other.
  if (workspace) {
    check("workspace", workspace.size() * static_cast<std::int64_t>(size_of(workspace.dtype())));
  }
  if (workspace_bytes) check("workspace_bytes", static_cast<std::int64_t>(*workspace_bytes));
}

}  // namespace tessera::arguments
