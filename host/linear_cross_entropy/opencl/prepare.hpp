// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "host/linear/opencl/prepare.hpp"
#include "host/linear_cross_entropy/opencl/run.hpp"
#include "host/linear_cross_entropy/request.hpp"

namespace tessera::linear_cross_entropy {

using Prepared = linear::Prepared<Programs>;

/// Engine, schedule and programs of a request. Throws Error invalid_argument for illegal blocks and
/// knobs, workspace_too_small, out_of_memory.
Prepared prepare(const Request& request, const std::string& engine_name, opencl::Runtime& runtime);

}  // namespace tessera::linear_cross_entropy
