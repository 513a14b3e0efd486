// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/test_operator.hpp"

/// What operators make their parts of the table of problems of. A new implementation is tested by
/// being registered; a new kind of problem by a row here, or in the operator's own groups.
namespace tessera::test {

Case base(const std::string& name);  ///< what every case starts from
/// Odd sizes, each extent below, at and above powers of two, and no rows or no depth at all.
std::vector<Case> sizes();
std::vector<Case> types();
std::vector<Case> options(const TestOperator& op);
std::vector<Case> data();
std::vector<Case> views();
/// Soft targets of every form, with every option, data and view that they meet.
std::vector<Case> soft_targets();
/// Their options, each on every form: many kernels, which a driver takes long to compile.
std::vector<Case> target_options();
/// Problems with many options at once, of which pairs.hpp chooses some.
std::vector<Case> mixed(const TestOperator& op);
/// Of options and data what every kernel of a loss runs through, not shrunk yet.
std::vector<Case> interpreted_of_every_loss(const TestOperator& op);

/// Small enough for an interpreter that is a million times slower.
std::vector<Case> shrunk(std::vector<Case> cases);

template <class Keep>
std::vector<Case> kept(const std::vector<Case>& cases, Keep keep) {
  std::vector<Case> result;
  std::copy_if(cases.begin(), cases.end(), std::back_inserter(result), keep);
  return result;
}

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends);

}  // namespace tessera::test
