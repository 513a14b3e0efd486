// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include "tessera/context.hpp"

namespace tessera::python {

namespace nb = nanobind;

void bind_context(nb::module_& m);

/// The Context that was given, or the process's own, which is made at the first call without one.
Context context_of(nb::handle given);

}  // namespace tessera::python
