// SPDX-License-Identifier: Apache-2.0
// Labels and soft targets in device memory, which the host cannot check.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {

constexpr Pass passes[] = {Pass::forward, Pass::backward, Pass::value_and_grad};

class OpenclTargets : public OperatorTest {
 protected:
  void SetUp() override {
    if (!shared_context().has_device()) GTEST_SKIP() << "no OpenCL device";
    OperatorTest::SetUp();
  }
};

/// Makes the targets of rows `first` and first + 1 wrong.
void spoil_targets(const Case& c, oracle::Problem& p, std::size_t first) {
  // One too many, and a negative one that is not ignore_index; in 64 bits one that is 1 in 32.
  const std::int64_t above = c.v;
  const std::int64_t odd = c.label_type == DType::i64 ? (std::int64_t{1} << 32) + 1 : -7;
  const auto k = static_cast<std::size_t>(p.k);
  const auto v = static_cast<std::size_t>(c.v);
  switch (c.targets) {
    case Targets::none:
      return;
    case Targets::labels:
      p.labels[first] = above;
      p.labels[first + 1] = odd;
      return;
    case Targets::one_pair:
      p.target_indices[first] = above;
      p.target_indices[first + 1] = odd;
      return;
    case Targets::pairs:
      p.target_indices[first * k] = odd;
      p.target_probs[(first + 1) * k] = -0.25;
      return;
    case Targets::dense:
      p.targets[first * v + 5] = -0.25;
      p.targets[(first + 1) * v] = std::numeric_limits<double>::quiet_NaN();
      return;
  }
}

/// Targets in device memory cannot be checked beforehand. What a bad one touches is NaN, the rest
/// is as if it were not there, and waiting names the first.
TEST_P(OpenclTargets, ThoseThatAreNoneAreReportedAfterwards) {
  Context& context = shared_context();
  const auto& [op, implementation] = GetParam();
  // Every way on one operator; of the others, whose targets are found by the same kernels, what a
  // row's outputs and gradients then are.
  const bool every = op == &test_operator<linear_cross_entropy::Operator>();
  for (const auto& [type, targets] : {std::pair{DType::i32, Targets::labels},
                                      {DType::i64, Targets::labels},
                                      {DType::i64, Targets::one_pair},
                                      {DType::i32, Targets::pairs},
                                      {DType::i32, Targets::dense}}) {
    if (!every && (type == DType::i64 || targets == Targets::dense)) continue;
    Case c;
    c.op = op;
    c.name = "targets_on_device_" + std::to_string(static_cast<int>(targets)) + to_string(type);
    c.place = Place::device;
    // Labels also where a group has counted all rows before the group of the first bad one.
    const std::size_t first = type == DType::i64 && targets == Targets::labels ? 1500 : 2;
    c.b = static_cast<std::int64_t>(first) + 35;
    c.h = 33;
    c.v = 301;
    c.label_type = type;
    c.targets = targets;
    c.options.reduction = Reduction::none;
    SCOPED_TRACE(c.name);
    Expected e = expected_of(c);
    spoil_targets(c, e.problem, first);
    e.values = op->forward_by_oracle(e.problem);
    e.gradients = op->backward_by_oracle(e.problem);
    for (const Pass pass : passes) {
      if (!every && pass != Pass::value_and_grad) continue;
      Arguments arguments(context, c, e.problem);
      if (pass == Pass::backward) arguments.add_statistics(context, e.values);
      Results results(context, c, e, pass, implementation);
      Completion done = op->start({context, implementation, pass, c, arguments, results}, {});
      try {
        done.wait();
        ADD_FAILURE() << to_string(pass) << ": two rows have no target";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::label_out_of_range) << error.what();
        EXPECT_NE(std::string(error.what()).find(fmt::format("row {}", first)), std::string::npos)
            << error.what();
        // A device has only the limit to tell, the host what is wrong.
        const std::string says =
            implementation.starts_with("opencl") ? std::to_string(c.v) : "are NaN";
        EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
      }
      EXPECT_THROW(done.wait(), Error) << "a second wait throws again";
      results.check(arguments);
    }
  }
}

/// All but the one that takes whole blocks alone.
INSTANTIATE_TEST_SUITE_P(All, OpenclTargets,
                         testing::ValuesIn(operators_and_implementations(takes_any_shape)),
                         operator_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpenclTargets);

}  // namespace
}  // namespace tessera::test
