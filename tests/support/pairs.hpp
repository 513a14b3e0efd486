// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/support/test_operator.hpp"

/// Which calls of the table scripts/test.sh makes on a device. Each of a kernel's variants takes
/// the driver half a second and more, so the product of passes, types, layouts and options is
/// `long`.
namespace tessera::test {

/// Whether the environment asks for more than scripts/test.sh runs: TESSERA_TEST_PRODUCT=1, or
/// names of cases (with TESSERA_TEST_PRODUCT=0, of its calls).
bool wants_product();

/// True where wants_product(), or an interpreter runs the kernels; and of the other calls
/// - on `opencl.cpu`, of those that together have every pair of features that the product has (a
///   pass with an option, an option with a type, a type with a layout) in few variants of kernels;
/// - on `opencl.simt`, of those that have every feature, and every pass with every group;
/// - on other implementations, of all.
bool is_in_pairs(const TestOperator& op, const std::string& implementation, Pass pass,
                 const Case& c);

/// The group of the cases of `mixed` that those calls have: one with many options at once stands
/// for many with one.
inline constexpr const char* mixed_group = "mixed";
std::vector<Case> mixed_in_pairs(const TestOperator& op);

/// Whether the pass on the implementation is promised for the case, or may serve it.
bool can_take(const TestOperator& op, const std::string& implementation, Pass pass, const Case& c);

}  // namespace tessera::test
