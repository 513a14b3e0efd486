// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

/// Adds `custom_kernel`, and what kernels of callers are described with.
void bind_custom(nanobind::module_& m);

}  // namespace tessera::python
