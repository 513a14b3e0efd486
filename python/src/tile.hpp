// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

/// Adds the module `tile`: what a TPU would take for the fused loss.
void bind_tile(nanobind::module_& m);

}  // namespace tessera::python
