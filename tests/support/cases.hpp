// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/support/problem.hpp"

/// The table of problems. A new implementation is tested by being registered; a new kind of problem
/// by a row here.
namespace tessera::test {

/// Names of the groups; with TESSERA_TEST_TINY=1 only those an interpreter can afford.
std::vector<std::string> linear_groups();
std::vector<Case> linear_group(const std::string& group);
std::vector<std::string> softmax_groups();
std::vector<Case> softmax_group(const std::string& group);

}  // namespace tessera::test
