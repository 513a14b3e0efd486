// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "tests/support/problem.hpp"

namespace tessera::test::fuzz {

/// The smallest and plainest problem found that still fails: field by field what a default Case
/// has, and extents halved, while `fails` says true. Each try has a name of its own.
Case shrink(const Case& failing, const std::function<bool(const Case&)>& fails);

}  // namespace tessera::test::fuzz
