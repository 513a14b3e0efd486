// SPDX-License-Identifier: Apache-2.0
#include "tessera/error.hpp"

namespace tessera {

// Out of line, so that the type's identity (vtable, typeinfo) lives in one library.
Error::~Error() = default;

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::foreign_context:
      return "foreign_context";
    case ErrorCode::label_out_of_range:
      return "label_out_of_range";
    case ErrorCode::workspace_too_small:
      return "workspace_too_small";
    case ErrorCode::device_not_found:
      return "device_not_found";
    case ErrorCode::build_failed:
      return "build_failed";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::execution_failed:
      return "execution_failed";
  }
  return "?";
}

}  // namespace tessera
