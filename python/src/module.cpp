// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>

#include "python/src/arrays.hpp"
#include "python/src/calls.hpp"
#include "python/src/context.hpp"
#include "python/src/custom.hpp"
#include "python/src/errors.hpp"
#include "python/src/partial.hpp"
#include "python/src/profile.hpp"
#include "python/src/reports.hpp"
#include "python/src/result.hpp"
#include "python/src/tile.hpp"
#include "tessera/version.hpp"

NB_MODULE(_core, m) {
  namespace python = tessera::python;
  // A Context that a program keeps to its end is no leak worth words on stderr.
  nanobind::set_leak_warnings(false);
  python::bind_errors(m);
  python::bind_reports(m);
  python::bind_context(m);
  python::bind_arrays(m);
  python::bind_result(m);
  python::bind_partials(m);
  python::bind_custom(m);
  python::bind_profile(m);
  python::bind_operators(m);
  python::bind_tile(m);
  m.attr("__version__") = tessera::version();
  m.attr("revision") = tessera::revision();
  m.attr("build_description") = tessera::build_description();
}
