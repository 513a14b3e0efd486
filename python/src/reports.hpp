// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "tessera/execution.hpp"

namespace tessera::python {

namespace nb = nanobind;

/// Adds Dispatch, Plan, CostEstimate and what they hold.
void bind_reports(nb::module_& m);

nb::dict to_dict(const std::vector<NamedValue>& values);
/// Throws TypeError, which names `argument`, for what is no mapping of names to integers.
std::vector<NamedValue> to_named(const char* argument, nb::handle given);

}  // namespace tessera::python
