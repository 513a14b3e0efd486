// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "tessera/context.hpp"

namespace tessera::operators {

/// "open" or "closed: " and why: of the matrix unit of NVIDIA's Hopper (wgmma), which computes a
/// few tiles where it was not asked before. Nothing: the context's device is not one.
TESSERA_API std::optional<std::string> wgmma_state(Context& context);

}  // namespace tessera::operators
