// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/support/compare.hpp"
#include "tests/support/problem.hpp"
#include "tests/support/tolerance.hpp"

/// Runs a case of the table on one implementation and compares everything it wrote.
namespace tessera::test {

/// A case's problem and what the oracle says of it; computed once per process.
struct Expected {
  oracle::Problem problem;
  oracle::Values values;
  oracle::Gradients gradients;
  ValueTolerance tolerance;
};
const Expected& expected_of(const Case& c);

/// The context that the tests of this process share; quiet, and with the device of the environment.
/// Made by the first call, from the test's own thread.
Context& shared_context();
/// For main: drivers may be gone when static objects are destroyed.
void close_shared_context();

/// Names to test, in the table's order: implementations(), restricted by the comma-separated
/// TESSERA_TEST_IMPLEMENTATIONS ("opencl" means every row under it).
std::vector<std::string> linear_implementations();
std::vector<std::string> softmax_implementations();

/// Stands for a call that names no implementation, in `run_case`: what serves it is the device
/// where the context has one, else eigen.
inline constexpr const char* default_order = "default";

/// True when TESSERA_TEST_CASES is not set, or one of its comma-separated parts is in the name.
bool is_wanted(const std::string& case_name);

/// Nothing, or why this implementation cannot even run the smallest problem here (no device).
std::optional<std::string> why_absent(const std::string& implementation, bool softmax);

/// True with TESSERA_TEST_TINY=1: an interpreter runs the kernels; a few tiny cases only.
bool tiny();

/// The views of one call's results, poisoned, and their comparison.
class Results {
 public:
  Results(Context& context, const Case& c, const Expected& expected, Pass pass,
          const std::string& implementation);

  Outputs outputs() const;
  linear_cross_entropy::Gradients linear_gradients() const;
  softmax_cross_entropy::Gradients softmax_gradients(const Arguments& arguments) const;
  /// Adds gtest failures for everything that deviates, was not written, or was written beside.
  void check(Arguments& arguments);
  SummaryKey key() const;

  Argument loss, lse, argmax, label_logprob, entropy, z_loss, statistics;
  Argument grad_x, grad_w, grad_bias, grad_logits;

 private:
  bool wants_gradients() const { return pass_ == Pass::backward || pass_ == Pass::value_and_grad; }
  void check_values();
  void check_argmax();
  void check_statistics();
  void check_gradients(Arguments& arguments);
  void check_surroundings();
  std::vector<std::pair<const char*, Argument*>> all();

  const Case& case_;
  const Expected& expected_;
  Pass pass_;
  std::string implementation_;
  /// What accumulate adds to, by flat index.
  std::vector<double> base_x_, base_w_, base_bias_, base_logits_;
};

/// How `run_case` executes a case.
linear_cross_entropy::ExecutionOptions linear_execution(const std::string& implementation,
                                                        const Case& c);
softmax_cross_entropy::ExecutionOptions softmax_execution(const std::string& implementation,
                                                          const Case& c);

/// Runs the case; false: the implementation refused it (recorded in the summary; an implementation
/// of this project that refuses a case of the table is a failure).
bool run_case(Context& context, const std::string& implementation, Pass pass, const Case& c);
bool run_case(const std::string& implementation, Pass pass, const Case& c);

/// True when the implementation may round dz to bf16 for this case.
bool rounds_dz(const std::string& implementation, const Case& c);

}  // namespace tessera::test
