// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/test_operator.hpp"

namespace tessera::test {

/// One case of tests/goldens: a problem and what PyTorch's float64 autograd says of it.
struct Golden {
  std::string name;
  const TestOperator* op = nullptr;
  oracle::Problem problem;
  /// By file name without ".npy": "loss", "lse", ..., "grad_x"; "argmax" holds integers.
  std::map<std::string, std::vector<double>> expected;
};

/// Reads a case, a folder. Throws std::runtime_error for a file it does not understand.
Golden read_golden(const std::string& folder);

/// The folders of all cases below `root`, sorted.
std::vector<std::string> golden_folders(const std::string& root);

}  // namespace tessera::test
