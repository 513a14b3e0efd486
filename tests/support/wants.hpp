// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/operator.hpp"

namespace tessera::test {

/// Every optional output of a loss.
inline Wants every_output() {
  Wants wants;
  for (const auto& output : loss_outputs) {
    if (output.wanted != nullptr) wants.*output.wanted = true;
  }
  return wants;
}

}  // namespace tessera::test
