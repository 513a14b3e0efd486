// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "tessera/version.hpp"

namespace tessera {

/// What kind of thing went wrong. The message says which argument, value, limit, and what to do.
enum class ErrorCode {
  invalid_argument,     ///< a shape, stride, type, option or name that can never be right
  unsupported,          ///< legal, but no implementation that was allowed to run can do it
  foreign_context,      ///< a cl_mem, queue or event that belongs to another cl_context
  label_out_of_range,   ///< a label that is neither ignore_index nor inside the vocabulary
  workspace_too_small,  ///< workspace_bytes, or a lent block, below the minimum in the message
  device_not_found,     ///< no device matches the requested text
  build_failed,         ///< a kernel did not compile; build_log() holds the compiler's words
  out_of_memory,        ///< the host or the device could not provide memory
  execution_failed,     ///< a command failed after outputs may have been written; names them
};

/// The enumerator's own name, e.g. "invalid_argument".
TESSERA_API const char* to_string(ErrorCode code) noexcept;

/// The only exception type that the library throws.
///
/// Invalid and unsupported requests throw before any output is touched. `execution_failed` is the
/// one code after which outputs are unspecified; its message names them.
class TESSERA_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::string build_log = {})
      : std::runtime_error(message), code_(code), build_log_(std::move(build_log)) {}
  ~Error() override;

  ErrorCode code() const noexcept { return code_; }

  /// The OpenCL compiler's log for `build_failed`, else empty.
  const std::string& build_log() const noexcept { return build_log_; }

 private:
  ErrorCode code_;
  std::string build_log_;
};

}  // namespace tessera
