// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/src/calls.hpp"

namespace tessera::python {

/// Adds the class PartialResult and what merges them.
void bind_partials(nb::module_& m);
/// Adds `forward_partial` and `combine` to a loss operator's module.
void bind_partial(nb::module_& m, const Signature& signature);

}  // namespace tessera::python
