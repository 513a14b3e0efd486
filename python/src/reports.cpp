// SPDX-License-Identifier: Apache-2.0
#include "python/src/reports.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <string>

#include "python/src/errors.hpp"
#include "tessera/cost_estimate.hpp"

namespace tessera::python {
namespace {

template <class T>
std::string line(const char* name, std::initializer_list<std::pair<const char*, T>> values) {
  std::string text = std::string("<tessera.") + name;
  for (const auto& [key, value] : values)
    text += std::string(" ") + key + "=" + std::to_string(value);
  return text + ">";
}

void bind_dispatch(nb::module_& m) {
  nb::class_<Refusal>(m, "Refusal", "An implementation that did not serve a call, and why.")
      .def_ro("implementation", &Refusal::implementation)
      .def_ro("reason", &Refusal::reason)
      .def("__repr__", [](const Refusal& r) {
        return "<tessera.Refusal " + r.implementation + ": " + r.reason + ">";
      });
  nb::class_<Dispatch>(m, "Dispatch", "What ran, with which blocks, and why.")
      .def_ro("implementation", &Dispatch::implementation)
      .def_ro("schedule", &Dispatch::schedule)
      .def_ro("device", &Dispatch::device)
      .def_ro("driver", &Dispatch::driver)
      .def_prop_ro("block_sizes", [](const Dispatch& d) { return to_dict(d.block_sizes); })
      .def_prop_ro("knobs", [](const Dispatch& d) { return to_dict(d.knobs); })
      .def_prop_ro("block_source", [](const Dispatch& d) { return to_string(d.block_source); })
      .def_ro("block_reason", &Dispatch::block_reason)
      .def_ro("refused", &Dispatch::refused)
      .def_ro("warnings", &Dispatch::warnings)
      .def_ro("workspace_bytes", &Dispatch::workspace_bytes)
      .def_ro("staged_bytes", &Dispatch::staged_bytes)
      .def_ro("notes", &Dispatch::notes)
      .def_ro("shards", &Dispatch::shards)
      .def("__repr__", [](const Dispatch& d) { return "<tessera.Dispatch " + to_string(d) + ">"; });
}

void bind_plan(nb::module_& m) {
  nb::class_<PlannedLaunches>(m, "PlannedLaunches", "Launches of one kernel by a schedule.")
      .def_ro("kernel", &PlannedLaunches::kernel)
      .def_ro("times", &PlannedLaunches::times)
      .def_ro("groups", &PlannedLaunches::groups, "work-groups of each launch")
      .def_ro("share", &PlannedLaunches::share, "of the machine that a launch keeps busy")
      .def_ro("flops", &PlannedLaunches::flops)
      .def_ro("bytes", &PlannedLaunches::bytes, "past the caches; 0: not counted");
  nb::class_<ConsideredSchedule>(m, "ConsideredSchedule", "A schedule that was looked at.")
      .def_ro("name", &ConsideredSchedule::name)
      .def_ro("logits", &ConsideredSchedule::logits)
      .def_ro("is_taken", &ConsideredSchedule::is_taken)
      .def_ro("reason", &ConsideredSchedule::reason)
      .def_ro("predicted_share", &ConsideredSchedule::predicted_share)
      .def_ro("workspace_bytes", &ConsideredSchedule::workspace_bytes)
      .def_ro("launches", &ConsideredSchedule::launches)
      .def_ro("multiply_seconds", &ConsideredSchedule::multiply_seconds)
      .def_ro("memory_seconds", &ConsideredSchedule::memory_seconds)
      .def_ro("launch_seconds", &ConsideredSchedule::launch_seconds)
      .def_prop_ro("predicted_seconds", &ConsideredSchedule::predicted_seconds)
      .def("__repr__", [](const ConsideredSchedule& s) {
        return "<tessera.ConsideredSchedule " + s.name + (s.is_taken ? " (taken): " : ": ") +
               s.reason + ">";
      });
  nb::class_<Plan>(m, "Plan", "What a call would use.")
      .def_ro("workspace_bytes", &Plan::workspace_bytes)
      .def_ro("minimum_workspace_bytes", &Plan::minimum_workspace_bytes)
      .def_ro("dispatch", &Plan::dispatch)
      .def_ro("considered", &Plan::considered)
      .def("__repr__", [](const Plan& p) {
        return "<tessera.Plan " + to_string(p.dispatch) + ", at least " +
               std::to_string(p.minimum_workspace_bytes) + " bytes of workspace>";
      });
}

}  // namespace

nb::dict to_dict(const std::vector<NamedValue>& values) {
  nb::dict result;
  for (const auto& [name, value] : values) result[nb::str(name.c_str())] = value;
  return result;
}

std::vector<NamedValue> to_named(const char* argument, nb::handle given) {
  std::vector<NamedValue> values;
  nb::dict items;
  if (!nb::try_cast(given, items)) {
    raise(PyExc_TypeError, std::string(argument) + " is a " + type_text(given) +
                               "; give a dict of names and integers");
  }
  for (const auto& [name, value] : items) {
    std::int64_t number = 0;
    if (!nb::isinstance<nb::str>(name) || PyBool_Check(value.ptr()) ||
        !nb::try_cast(value, number)) {
      raise(PyExc_TypeError, std::string(argument) + "[" + nb::repr(name).c_str() + "] is " +
                                 nb::repr(value).c_str() + "; give a name and an integer");
    }
    values.push_back({nb::str(name).c_str(), number});
  }
  return values;
}

void bind_reports(nb::module_& m) {
  bind_dispatch(m);
  bind_plan(m);
  nb::class_<CostEstimate>(m, "CostEstimate", "What a call costs by its shapes; nothing is run.")
      .def_ro("flops", &CostEstimate::flops, "2BHV forward, 6BHV with both gradients")
      .def_ro("transcendentals", &CostEstimate::transcendentals)
      .def_ro("bytes_ideal", &CostEstimate::bytes_ideal, "each input and output once")
      .def_ro("bytes_moved", &CostEstimate::bytes_moved, "what the blocking really moves")
      .def_ro("executed_flops", &CostEstimate::executed_flops, "with what the schedule repeats")
      .def("__repr__", [](const CostEstimate& c) {
        return line<std::int64_t>(
            "CostEstimate",
            {{"flops", c.flops}, {"bytes_ideal", c.bytes_ideal}, {"bytes_moved", c.bytes_moved}});
      });
}

}  // namespace tessera::python
