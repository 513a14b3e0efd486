// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/loss/partial.hpp"
#include "reference/oracle/oracle.hpp"
#include "tests/support/problem.hpp"
#include "tests/support/results.hpp"
#include "tests/support/tolerance.hpp"

namespace tessera::test {

/// The type of an argument's elements and where they lie; without strides they are dense.
struct ArrayMemory {
  DType type = DType::f32;
  Dims strides{};
};

/// Where the oracle and the tolerances have a gradient, and which parts of it are judged by their
/// Euclidean norm: none, its rows, or the columns of a matrix.
struct JudgedGradient {
  enum class By { elements, rows, columns };
  const char* name;
  std::vector<double> oracle::Gradients::*expected;
  std::vector<double> GradientTolerance::*tolerance;
  By by;
};

/// Cases that a test runs together.
struct CaseGroup {
  const char* name;
  std::vector<Case> cases;
};

/// One call of a case.
struct CaseCall {
  Context& context;
  const std::string& implementation;  ///< or `default_order`
  Pass pass;
  const Case& c;
  const Arguments& arguments;
  Results& results;
};

/// How a call joins commands of others: ExecutionOptions' members of these names.
struct InFlight {
  cl_command_queue queue = nullptr;
  std::vector<cl_event> wait_for{};
};

/// An operator as the tests see it: its description, its calls as values (operator_calls.cpp), and
/// what its file in tests/support/operators says.
class TestOperator {
 public:
  explicit TestOperator(const char* name) : op_(operators::description(name)) {}
  virtual ~TestOperator() = default;

  const char* name() const { return op_.name; }
  std::vector<ImplementationInfo> implementations() const { return op_.implementations(); }
  const std::vector<operators::Input>& inputs() const { return op_.inputs; }
  const std::vector<operators::Output>& outputs() const { return op_.outputs; }
  const std::vector<operators::Gradient>& gradients() const { return op_.gradients; }
  /// The input that a gradient is of.
  const operators::Input& input_of(const operators::Gradient& gradient) const {
    return op_.inputs[gradient.of];
  }
  bool has_pass(Pass pass) const { return op_.has(pass); }

  operators::Call call_of(const CaseCall& call) const;
  /// Nothing, or why the implementation cannot even run a problem of 1 x 1 x 2.
  std::optional<std::string> why_absent(Context& context, const std::string& implementation) const;
  std::optional<std::string> why_refused(const CaseCall& call) const;
  Plan planned(const CaseCall& call) const;
  /// Starts a call of a pass other than forward_partial.
  Completion start(const CaseCall& call, const InFlight& how) const;
  /// Runs the call and waits for it; what forward_partial gives is combined into the results.
  Dispatch run(const CaseCall& call) const;
  /// Runs the call with one of the things wrong that can be (broken_call.hpp), by `how` modulo
  /// their number, which `broken` then says. Throws as the call does.
  void run_broken(const CaseCall& call, std::uint64_t how, std::string& broken) const;

  // What follows from the operator's types (operator_calls.hpp).
  /// Sets the options of a case: those of its loss, and the operator's own.
  virtual void set_options(const Case& c, operators::Call& call) const = 0;
  /// Combines what forward_partial gave for the whole vocabulary into the results.
  virtual void combine_into(const CaseCall& call, const loss::CallPartial& partial) const = 0;

  /// Its part of the table of problems, in the order in which it is run.
  virtual std::vector<CaseGroup> groups() const = 0;
  /// What every kernel of every family runs through at least once, tiny: for interpreters.
  virtual std::vector<Case> interpreted() const = 0;
  /// The numbers of a case as doubles that its types represent exactly; cotangents included.
  virtual oracle::Problem make_problem(const Case& c) const = 0;
  /// Where the problem has the numbers of an input that other operators do not have.
  virtual std::vector<double> oracle::Problem::*own_values(std::string_view input) const = 0;
  /// ArrayMemory of an input that other operators do not have.
  virtual ArrayMemory own_memory(const Case& c, const RowLayout& rows,
                                 std::string_view input) const = 0;
  virtual ArrayMemory gradient_memory(const Case& c, const RowLayout& rows,
                                      std::string_view gradient) const = 0;
  virtual std::vector<JudgedGradient> judged() const = 0;
  /// What tells apart, of kernels that no other operator has, those that a case needs.
  virtual std::vector<std::string> own_features(const Case&) const { return {}; }
  /// Whether a case has a way over shards of the vocabulary, in an operator that has one.
  virtual bool has_shards(const Case&) const { return true; }
  /// Cases of a test of shards with what is the operator's own.
  virtual std::vector<Case> as_shards(std::vector<Case> cases) const { return cases; }
  /// Whether a problem has what is read `usually`, rather than what stands in its place.
  virtual bool takes_the_usual(const oracle::Problem&) const { return true; }
  /// The judge, and how far from it a result may be; an operator's own maths overrides them.
  virtual oracle::Values forward_by_oracle(const oracle::Problem& problem) const {
    return oracle::forward(problem);
  }
  virtual oracle::Gradients backward_by_oracle(const oracle::Problem& problem) const {
    return oracle::backward(problem);
  }
  virtual ValueTolerance tolerance_of(const oracle::Problem& problem,
                                      const oracle::Values& values) const {
    return value_tolerance(problem, values);
  }
  virtual GradientTolerance tolerance_of(const Expected& expected,
                                         const Precision& precision) const {
    return gradient_tolerance(expected.problem, expected.values, expected.gradients,
                              expected.tolerance, precision);
  }
  /// An extent of the case by the letter of SymbolicShape.
  virtual std::int64_t extent(const Case& c, char letter) const;
  /// True where both operands of a matrix product are of this type. Of bf16 an implementation may
  /// then round the gradient of the products to it, and multiply pairs.
  virtual bool multiplies(const Case& c, DType type) const = 0;
  /// True where every other product of the call has such operands too.
  virtual bool multiplies_alone(const Case& c, DType type) const { return multiplies(c, type); }
  /// True where dz may be f16: all rows have one cotangent.
  virtual bool keeps_dz_in_f16(const Case&) const { return false; }
  /// Columns of the summary: the types and the layout of the operands.
  virtual std::string types_of(const Case& c) const = 0;
  virtual std::string layout_of(const Case& c) const = 0;

  /// Where the problem has the numbers of an input; nullptr: they are no doubles of a problem
  /// (labels, and what is saved for backward).
  std::vector<double> oracle::Problem::*values(std::string_view input) const;
  /// True where the case has the input.
  bool is_given(const operators::Input& input, const oracle::Problem& problem) const;
  /// Of the first input and everything that is per token.
  RowLayout rows(const Case& c) const;
  Dims extents(const Case& c, const SymbolicShape& shape) const;

 private:
  const operators::Description& op_;
};

/// Whether any of the operator's implementations needs a device.
bool runs_on_opencl(const TestOperator& op);

/// True for the inputs that every loss has after an operator's own.
bool is_of_every_loss(std::string_view input);

/// Names of the operator's groups; with TESSERA_TEST_TINY=1 only those an interpreter can afford.
std::vector<std::string> group_names(const TestOperator& op);
std::vector<Case> cases_of(const TestOperator& op, const std::string& group);

/// Names to test, in the table's order: implementations(), restricted by the comma-separated
/// TESSERA_TEST_IMPLEMENTATIONS ("opencl" means every row under it).
/// Matrix units are among them only where the environment names them.
std::vector<std::string> implementations_of(const TestOperator& op);
/// Multiplies bf16 alone, or f16: of a device that has the instruction, or emulates it.
inline constexpr const char* matrix_units = "opencl.mma";
/// Multiplies bf16 alone, of a device that has the instruction.
inline constexpr const char* hoppers_unit = "opencl.wgmma";
inline bool is_matrix_unit(const std::string& name) {
  return name == matrix_units || name == hoppers_unit;
}
/// The same of any operator.
std::vector<std::string> wanted_of(const std::vector<ImplementationInfo>& all);
using Applies = bool (*)(const std::string& implementation);
/// Implementations to which a test applies, of the operator whose cases it has made by hand.
template <class Operator>
std::vector<std::string> implementations_of(Applies applies = nullptr) {
  auto names = implementations_of(test_operator<Operator>());
  if (applies != nullptr) std::erase_if(names, [&](const auto& name) { return !applies(name); });
  return names;
}
inline bool is_on_opencl(const std::string& name) { return name.starts_with("opencl."); }
/// tpu_tile takes whole blocks of labels alone.
inline bool takes_any_shape(const std::string& name) { return name != "tpu_tile"; }
/// The reference holds everything, and takes minutes.
inline bool streams(const std::string& name) {
  return takes_any_shape(name) && name != "reference";
}

}  // namespace tessera::test
