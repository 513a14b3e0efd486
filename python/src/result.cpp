// SPDX-License-Identifier: Apache-2.0
#include "python/src/result.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <string>

#include "python/src/errors.hpp"

namespace tessera::python {

nb::object Result::get(std::string_view name) const {
  for (const auto& [known, array] : arrays_) {
    if (name == known) return array;
  }
  raise(PyExc_AttributeError, "the result has no '" + std::string(name) + "'");
}

void bind_result(nb::module_& m) {
  nb::class_<Result>(m, "Result",
                     "The arrays that a call returned, as attributes; None where not asked for.")
      .def("__getattr__", &Result::get)
      .def_prop_ro("dispatch", &Result::dispatch, "What ran, with which blocks, and why.")
      .def("__dir__",
           [](const Result& r) {
             nb::list names;
             names.append("dispatch");
             for (const auto& [name, array] : r.arrays()) names.append(name);
             return names;
           })
      .def("__repr__", [](const Result& r) {
        std::string text = "<tessera.Result";
        for (const auto& [name, array] : r.arrays()) {
          if (array.is_none()) continue;
          const nb::object shape = nb::getattr(array, "shape", nb::none());
          const bool is_number = nb::isinstance<nb::tuple>(shape) && nb::len(shape) == 0;
          text +=
              std::string(" ") + name + "=" + nb::str(is_number ? array : nb::repr(shape)).c_str();
        }
        return text + ", " + to_string(r.dispatch()) + ">";
      });
}

}  // namespace tessera::python
