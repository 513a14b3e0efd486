// SPDX-License-Identifier: Apache-2.0
#include "python/src/profile.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/src/context.hpp"
#include "python/src/errors.hpp"
#include "python/src/reports.hpp"
#include "tessera/profile.hpp"

namespace tessera::python {
namespace {

/// A profile that records between `__enter__` and `__exit__`, and can be read after that.
class Scope {
 public:
  explicit Scope(Context context) : context_(std::move(context)) {}

  void enter() {
    if (held_ || rows_)
      raise(PyExc_RuntimeError, "a tessera.Profile is entered once; make another");
    held_.emplace(context_);
  }
  void exit() {
    // It ends here whether the trace can be written or not.
    const struct End {
      std::optional<Profile>& held;
      ~End() { held.reset(); }
    } end{held_};
    // What is read later is kept, since the library's own profile records as long as it lives.
    rows_ = profile().kernels();
    times_ = profile().times();
    notes_ = profile().notes();
    if (!trace_.empty()) profile().write(trace_);
  }
  void write_at_exit(const std::string& path) { trace_ = path; }
  std::vector<ProfileRow> kernels() const { return rows_ ? *rows_ : profile().kernels(); }
  ProfileTimes times() const { return rows_ ? times_ : profile().times(); }
  std::vector<std::string> notes() const { return rows_ ? notes_ : profile().notes(); }
  void write(const std::string& path) const {
    if (rows_) {
      raise(PyExc_RuntimeError,
            "the profile has ended; write within its scope, or give tessera.Profile(trace=path)");
    }
    profile().write(path);
  }

 private:
  const Profile& profile() const {
    if (!held_) raise(PyExc_RuntimeError, "the profile has not begun; use it in a with statement");
    return *held_;
  }

  Context context_;
  std::optional<Profile> held_;
  std::optional<std::vector<ProfileRow>> rows_;
  ProfileTimes times_;
  std::vector<std::string> notes_;
  std::string trace_;
};

void bind_rows(nb::module_& m) {
  nb::class_<ProfileRow>(m, "ProfileRow", "Spans of one name in calls of one kind.")
      .def_prop_ro("kind", [](const ProfileRow& row) { return to_string(row.kind); })
      .def_ro("name", &ProfileRow::name)
      .def_ro("implementation", &ProfileRow::implementation)
      .def_ro("operation", &ProfileRow::operation)
      .def_ro("pass_name", &ProfileRow::pass)
      .def_ro("calls", &ProfileRow::calls)
      .def_ro("total_ns", &ProfileRow::total_ns)
      .def_ro("min_ns", &ProfileRow::min_ns)
      .def_ro("max_ns", &ProfileRow::max_ns)
      .def_ro("untimed", &ProfileRow::untimed)
      .def_ro("work_groups", &ProfileRow::work_groups)
      .def_prop_ro("block_sizes", [](const ProfileRow& row) { return to_dict(row.block_sizes); })
      .def_prop_ro("knobs", [](const ProfileRow& row) { return to_dict(row.knobs); })
      .def("__repr__", [](const ProfileRow& row) {
        return std::string("<tessera.ProfileRow ") + to_string(row.kind) + " " + row.name + ": " +
               std::to_string(row.calls) + " times, " + std::to_string(row.total_ns / 1000) +
               " us>";
      });
  nb::class_<ProfileTimes>(m, "ProfileTimes",
                           "Seconds of the wall, each instant counted once: as kernels' where one "
                           "was running, else as copies', else as waits'.")
      .def_ro("kernels", &ProfileTimes::kernels)
      .def_ro("copies", &ProfileTimes::copies)
      .def_ro("waits", &ProfileTimes::waits)
      .def_ro("rest", &ProfileTimes::rest)
      .def_prop_ro("total", &ProfileTimes::total);
}

}  // namespace

void bind_profile(nb::module_& m) {
  bind_rows(m);
  nb::class_<Scope>(m, "Profile",
                    "Records the calls of a Context, on any thread, within a with statement.")
      .def(
          "__init__",
          [](Scope* self, nb::handle context, const std::string& trace) {
            new (self) Scope(context_of(context));
            self->write_at_exit(trace);
          },
          nb::arg("context") = nb::none(), nb::kw_only(), nb::arg("trace") = "",
          "`trace`: where to write a trace for Perfetto at the end; empty: nowhere.")
      .def("__enter__",
           [](nb::handle self) {
             nb::cast<Scope&>(self).enter();
             return nb::borrow(self);
           })
      .def("__exit__", [](Scope& scope, const nb::args&) { scope.exit(); })
      .def("kernels", &Scope::kernels, "What ran, of each kind the longest in total first.")
      .def("times", &Scope::times)
      .def("notes", &Scope::notes, "What is missing, and why.")
      .def("write", &Scope::write, nb::arg("path"),
           "Writes the spans until now as a trace for Perfetto, within the scope.");
}

}  // namespace tessera::python
