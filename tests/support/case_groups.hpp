// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/support/cases.hpp"

/// Groups of the table of problems that are long enough for a file of their own.
namespace tessera::test {

Case base(const std::string& name);  ///< what every case starts from
std::vector<Case> data(bool softmax);
std::vector<Case> views();
std::vector<Case> blocks();
std::vector<Case> pairs();
std::vector<Case> saturated();
std::vector<Case> filtered();
std::vector<Case> streamed();

}  // namespace tessera::test
