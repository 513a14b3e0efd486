// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/opencl.hpp>
#include <string>
#include <string_view>

#include "tessera/error.hpp"

/// OpenCL's status codes as tessera::Error.
namespace tessera::opencl {

/// "CL_OUT_OF_RESOURCES (-5)"; "unknown code (-9999)" for what the headers do not name.
std::string code_name(cl_int code);

/// Memory codes are out_of_memory, compiler codes build_failed, everything else execution_failed.
ErrorCode classify(cl_int code) noexcept;

/// Throws Error classify(code): the OpenCL call, the code, the device, what it was doing
/// ("enqueuing kernel merge"), and what a user can do about it.
[[noreturn]] void throw_error(cl_int code, const char* call, std::string_view device,
                              std::string_view doing = {});

/// clhpp's exception, thrown on.
[[noreturn]] inline void throw_error(const cl::Error& error, std::string_view device,
                                     std::string_view doing = {}) {
  throw_error(error.err(), error.what(), device, doing);
}

inline void check(cl_int code, const char* call, std::string_view device,
                  std::string_view doing = {}) {
  if (code != CL_SUCCESS) [[unlikely]] {
    throw_error(code, call, device, doing);
  }
}

}  // namespace tessera::opencl
