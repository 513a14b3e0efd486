// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tests/support/test_operator.hpp"

namespace tessera::test {

/// Its part of the table of problems (linear_cross_entropy_cases.cpp).
std::vector<CaseGroup> linear_cross_entropy_groups();
std::vector<Case> linear_cross_entropy_interpreted();

}  // namespace tessera::test
