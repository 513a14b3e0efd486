// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

/// Adds Profile, a context manager.
void bind_profile(nanobind::module_& m);

}  // namespace tessera::python
