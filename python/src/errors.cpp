// SPDX-License-Identifier: Apache-2.0
#include "python/src/errors.hpp"

#include <array>
#include <mutex>
#include <optional>
#include <vector>

namespace tessera::python {
namespace {

struct ErrorClass {
  ErrorCode code;
  const char* name;
  PyObject** builtin;  ///< what a caller who knows nothing of tessera would catch
};

const std::array<ErrorClass, 9> error_classes = {{
    {ErrorCode::invalid_argument, "InvalidArgumentError", &PyExc_ValueError},
    {ErrorCode::unsupported, "UnsupportedError", &PyExc_NotImplementedError},
    {ErrorCode::foreign_context, "ForeignContextError", &PyExc_ValueError},
    {ErrorCode::label_out_of_range, "LabelOutOfRangeError", &PyExc_IndexError},
    {ErrorCode::workspace_too_small, "WorkspaceTooSmallError", &PyExc_ValueError},
    {ErrorCode::device_not_found, "DeviceNotFoundError", &PyExc_LookupError},
    {ErrorCode::build_failed, "BuildFailedError", &PyExc_RuntimeError},
    {ErrorCode::out_of_memory, "OutOfMemoryError", &PyExc_MemoryError},
    {ErrorCode::execution_failed, "ExecutionFailedError", &PyExc_RuntimeError},
}};

// Never released: translators may run until the interpreter ends.
std::array<PyObject*, error_classes.size()> made_classes{};
PyObject* warning_class = nullptr;

thread_local std::vector<std::string> kept_warnings;

PyObject* new_exception(nb::module_& m, const char* name, const char* doc, nb::handle bases) {
  static std::vector<std::string> names;
  names.push_back(std::string("tessera.") + name);
  PyObject* made = PyErr_NewExceptionWithDoc(names.back().c_str(), doc, bases.ptr(), nullptr);
  if (made == nullptr) throw nb::python_error();
  m.attr(name) = nb::handle(made);
  return made;
}

void set_error(const Error& error) {
  for (std::size_t i = 0; i < error_classes.size(); ++i) {
    if (error_classes[i].code != error.code()) continue;
    const nb::object value = nb::handle(made_classes[i])(nb::str(error.what()));
    value.attr("code") = nb::str(to_string(error.code()));
    value.attr("build_log") = nb::str(error.build_log().c_str());
    PyErr_SetObject(made_classes[i], value.ptr());
    return;
  }
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    set_error(error);
  }
}

}  // namespace

void bind_errors(nb::module_& m) {
  PyObject* base = new_exception(
      m, "Error",
      "What the library refuses or fails at. `code` is the name of the kind, `build_log` the "
      "OpenCL compiler's words where a kernel did not compile. A call that was refused has touched "
      "no output; after ExecutionFailedError the outputs are unspecified.",
      nb::handle(PyExc_Exception));
  for (std::size_t i = 0; i < error_classes.size(); ++i) {
    const auto bases = nb::make_tuple(nb::handle(base), nb::handle(*error_classes[i].builtin));
    made_classes[i] = new_exception(m, error_classes[i].name, nullptr, bases);
  }
  warning_class = new_exception(
      m, "Warning", "What a call did without or fell back from, once per distinct message.",
      nb::handle(PyExc_UserWarning));
  nb::register_exception_translator(translate);
}

void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

std::string type_text(nb::handle object) { return nb::inst_name(object).c_str(); }

void keep_warning(const std::string& message) { kept_warnings.push_back(message); }

void hand_over_warnings() {
  if (kept_warnings.empty()) return;
  const auto kept = std::exchange(kept_warnings, {});
  for (const auto& message : kept) {
    if (PyErr_WarnEx(warning_class, message.c_str(), 1) != 0) throw nb::python_error();
  }
}

namespace {

// What is to be issued by the main thread, which does so between two of its instructions.
std::mutex later_guard;
std::vector<std::string>& issued_later() {
  static auto& messages = *new std::vector<std::string>();
  return messages;
}

int issue(void*) {
  std::vector<std::string> messages;
  {
    const std::lock_guard lock(later_guard);
    messages.swap(issued_later());
  }
  for (const auto& message : messages) {
    if (PyErr_WarnEx(warning_class, message.c_str(), 1) != 0) return -1;
  }
  return 0;
}

thread_local std::optional<Error> kept_error;

void keep_error(const void* error) { kept_error = *static_cast<const Error*>(error); }

void keep_text(const char* message) { keep_warning(message); }

void hand_over_later() {
  if (kept_warnings.empty()) return;
  {
    const std::lock_guard lock(later_guard);
    for (auto& message : kept_warnings) issued_later().push_back(std::move(message));
  }
  kept_warnings.clear();
  Py_AddPendingCall(issue, nullptr);
}

}  // namespace

FromOutside from_outside() {
  return {
      .keep_warning = keep_text, .hand_over_warnings = hand_over_later, .keep_error = keep_error};
}

void throw_kept_error(const std::string& message) {
  const auto error = std::exchange(kept_error, {});
  if (error && message.find(error->what()) != std::string::npos) throw Error(*error);
}

void hand_over_warnings_quietly() noexcept {
  try {
    hand_over_warnings();
  } catch (...) {  // the call's own exception says more
  }
}

}  // namespace tessera::python
