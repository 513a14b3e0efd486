// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tests/support/problem.hpp"
#include "tests/support/results.hpp"
#include "tests/support/test_operator.hpp"

/// Runs a case of the table on one implementation and compares everything it wrote.
namespace tessera::test {

/// The context that the tests of this process share; quiet, and with the device of the environment.
/// Made by the first call, from the test's own thread.
Context& shared_context();
/// For main: drivers may be gone when static objects are destroyed.
void close_shared_context();

/// Stands for a call that names no implementation, in `run_case`: what serves it is the device
/// where the context has one, else eigen.
inline constexpr const char* default_order = "default";

/// True when TESSERA_TEST_CASES is not set, or one of its comma-separated parts is in the name.
bool is_wanted(const std::string& case_name);
/// True when it is not set.
bool wants_all();

/// True with TESSERA_TEST_TINY=1: an interpreter runs the kernels; a few tiny cases only.
bool tiny();

/// The case of the table as an implementation takes it: matrix units sum no grad_bias, and
/// opencl.wgmma takes lines of w of whole 16 bytes.
Case taken_by(const std::string& implementation, Case c);
/// The implementations that this project promises for a case of the table.
bool serves(const std::string& implementation, Pass pass, const Case& c);

/// Runs the case; false: the implementation refused it (recorded in the summary; an implementation
/// of this project that refuses a case of the table is a failure).
bool run_case(Context& context, const std::string& implementation, Pass pass, const Case& c);
bool run_case(const std::string& implementation, Pass pass, const Case& c);

/// Runs the case with one thing wrong in it, chosen by `how`: an Error that says something, before
/// any output is touched. Returns what was wrong.
std::string run_broken_case(const std::string& implementation, Pass pass, const Case& c,
                            std::uint64_t how);

/// What the implementation plans for the case.
Plan plan_case(Context& context, const std::string& implementation, Pass pass, const Case& c);

/// The type that the implementation may round dz to for this case.
DType dz_type(const std::string& implementation, const Case& c);

}  // namespace tessera::test
