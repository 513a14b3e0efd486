// SPDX-License-Identifier: Apache-2.0
#include "python/src/context.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "python/src/errors.hpp"

namespace tessera::python {
namespace {

// The last is never destroyed: a driver's own static objects may be gone before it is.
std::mutex default_guard;
std::optional<Context>& default_held() {
  static auto& held = *new std::optional<Context>();
  return held;
}

ContextOptions options_of(const std::string& device, int threads, const std::string& cache_folder,
                          const std::string& dump_folder, bool host_only,
                          const std::string& plan_for) {
  return {.device = device,
          .threads = threads,
          .cache_folder = cache_folder,
          .dump_folder = dump_folder,
          .host_only = host_only,
          .plan_for = plan_for,
          .warning_handler = keep_warning};
}

Context default_context() {
  {
    const std::lock_guard lock(default_guard);
    if (default_held()) return *default_held();
  }
  return without_gil([] {
    const std::lock_guard lock(default_guard);
    if (!default_held()) default_held().emplace(ContextOptions{.warning_handler = keep_warning});
    return *default_held();
  });
}

std::string describe(const Context& context) {
  std::string text = "<tessera.Context on ";
  text += context.has_device() ? context.device_info().name + ", " : "the host, ";
  return text + std::to_string(context.threads()) + " host threads>";
}

void bind_device_info(nb::module_& m) {
  nb::class_<DeviceInfo>(m, "DeviceInfo", "What an OpenCL driver says of a device.")
      .def_ro("platform", &DeviceInfo::platform)
      .def_ro("name", &DeviceInfo::name)
      .def_ro("vendor", &DeviceInfo::vendor)
      .def_ro("driver", &DeviceInfo::driver)
      .def_ro("version", &DeviceInfo::version)
      .def_ro("type", &DeviceInfo::type, "'gpu', 'accelerator', 'cpu' or 'custom'")
      .def_ro("platform_index", &DeviceInfo::platform_index, "p of the selector 'p:d'")
      .def_ro("device_index", &DeviceInfo::device_index, "d of the selector 'p:d'")
      .def_ro("compute_units", &DeviceInfo::compute_units)
      .def_ro("global_memory_bytes", &DeviceInfo::global_memory_bytes)
      .def_ro("max_allocation_bytes", &DeviceInfo::max_allocation_bytes)
      .def_ro("local_memory_bytes", &DeviceInfo::local_memory_bytes)
      .def_ro("max_work_group_size", &DeviceInfo::max_work_group_size)
      .def_ro("shares_host_memory", &DeviceInfo::shares_host_memory)
      .def("__repr__", [](const DeviceInfo& d) {
        return "<tessera.DeviceInfo " + std::to_string(d.platform_index) + ":" +
               std::to_string(d.device_index) + " " + d.name + " (" + d.type + "), " +
               std::to_string(d.compute_units) + " units>";
      });
}

}  // namespace

Context context_of(nb::handle given) {
  if (!given.is_valid() || given.is_none()) return default_context();
  const Context* context = nullptr;
  if (!nb::try_cast(given, context) || context == nullptr) {
    raise(PyExc_TypeError, std::string("context is a ") + type_text(given) +
                               "; give a tessera.Context, or None for the process's own");
  }
  return *context;
}

void bind_context(nb::module_& m) {
  bind_device_info(m);
  nb::class_<Context>(m, "Context",
                      "A device (or none), its compiled programs and pooled workspaces, and a pool "
                      "of host threads. Threads may share one.")
      .def(
          "__init__",
          [](Context* self, const std::string& device, int threads, const std::string& cache_folder,
             const std::string& dump_folder, bool host_only, const std::string& plan_for) {
            new (self) Context(without_gil([&] {
              return Context(
                  options_of(device, threads, cache_folder, dump_folder, host_only, plan_for));
            }));
          },
          nb::kw_only(), nb::arg("device") = "", nb::arg("threads") = 0,
          nb::arg("cache_folder") = "", nb::arg("dump_folder") = "", nb::arg("host_only") = false,
          nb::arg("plan_for") = "",
          "`device`: text found in a platform's or device's name, or 'p:d'; empty: "
          "$TESSERA_DEVICE, else the first GPU, accelerator or CPU. `threads`: for work on the "
          "host; 0: all. `cache_folder`: keeps compiled programs for later processes. "
          "`dump_folder`: each compiled program leaves its source, log and code there, the code "
          "when the Context ends. `plan_for`: plans for a machine that is not here, such as "
          "'h100'.")
      .def_static(
          "from_queue",
          [](std::uintptr_t queue, int threads, const std::string& cache_folder,
             const std::string& dump_folder) {
            return without_gil([&] {
              return Context::from_queue(
                  reinterpret_cast<cl_command_queue>(queue),
                  options_of("", threads, cache_folder, dump_folder, false, ""));
            });
          },
          nb::arg("queue"), nb::kw_only(), nb::arg("threads") = 0, nb::arg("cache_folder") = "",
          nb::arg("dump_folder") = "",
          "Works on the caller's cl_command_queue, given as an integer (pyopencl: "
          "`queue.int_ptr`).")
      .def_prop_ro("has_device", &Context::has_device)
      .def_prop_ro(
          "device_info",
          [](const Context& c) {
            return c.has_device() ? std::optional(c.device_info()) : std::nullopt;
          },
          "None where there is no device.")
      .def_prop_ro("threads", &Context::threads, "Host threads, the caller's included.")
      .def_prop_ro("pooled_bytes", &Context::pooled_bytes,
                   "Device memory that the pool of workspaces holds.")
      .def("trim", &Context::trim, "Frees pooled workspaces that no call uses.")
      .def("__repr__", &describe);
  m.def("default_context", &default_context,
        "The Context of calls without one, made when first asked for.");
  m.def(
      "devices", [] { return without_gil([] { return devices(); }); },
      "Every OpenCL device that the installed drivers report.");
  // For tessera.torch, whose operators are in a library of their own.
  m.def("_address_of", [](const Context& c) { return reinterpret_cast<std::uintptr_t>(&c); });
  m.def("_from_outside", [] {
    const auto with = from_outside();
    return nb::make_tuple(reinterpret_cast<std::uintptr_t>(with.keep_warning),
                          reinterpret_cast<std::uintptr_t>(with.hand_over_warnings),
                          reinterpret_cast<std::uintptr_t>(with.keep_error));
  });
  m.def("_throw_kept_error", &throw_kept_error);
  m.def("tuned_blocks_file", &tuned_blocks_file, "The user's file of tuned block sizes.");
  m.def("reload_tuned_blocks", &reload_tuned_blocks,
        "Reads that file again; returns what is wrong with it, a line each.");
  m.def("default_cache_folder", &default_cache_folder);
}

}  // namespace tessera::python
