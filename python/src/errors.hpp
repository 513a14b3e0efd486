// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "tessera/context.hpp"

namespace tessera::python {

namespace nb = nanobind;

/// Adds `Error`, a class under it for each ErrorCode, and `Warning`.
void bind_errors(nb::module_& m);

/// Throws a Python exception of a built-in type.
[[noreturn]] void raise(PyObject* type, const std::string& message);

/// What Python calls the type of the object.
std::string type_text(nb::handle object);

/// Keeps what the library warns of for the calling thread: a Context has no say about the GIL.
void keep_warning(const std::string& message);
/// Hands the kept warnings to Python's `warnings`. Throws where a filter makes an exception of one.
void hand_over_warnings();
/// The same on the way out of a failed call, whose own exception must survive.
void hand_over_warnings_quietly() noexcept;

/// For code that knows nothing of Python and may not hold the GIL.
struct FromOutside {
  void (*keep_warning)(const char* message);  ///< for the calling thread
  void (*hand_over_warnings)();  ///< has the main thread issue those that the calling one has kept
  void (*keep_error)(const void* error);  ///< a tessera::Error, for the calling thread
};
FromOutside from_outside();
/// Throws the error that `keep_error` has kept for this thread, if it is the one of that message:
/// in a compiled graph nobody asks, so that an older one may be there.
void throw_kept_error(const std::string& message);

/// Calls `work` without the GIL, then hands over what it warned of.
template <class Work>
auto without_gil(const Work& work) {
  const auto run = [&] {
    nb::gil_scoped_release released;
    return work();
  };
  auto result = [&] {
    try {
      return run();
    } catch (...) {
      hand_over_warnings_quietly();
      throw;
    }
  }();
  hand_over_warnings();
  return result;
}

}  // namespace tessera::python
