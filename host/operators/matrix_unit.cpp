// SPDX-License-Identifier: Apache-2.0
#ifndef TESSERA_OPENCL

#include "host/operators/matrix_unit.hpp"

namespace tessera::operators {

std::optional<std::string> wgmma_state(Context&) { return std::nullopt; }

}  // namespace tessera::operators

#endif
