// SPDX-License-Identifier: Apache-2.0
// Labels and soft targets in device memory, which the host cannot check.
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

constexpr Pass passes[] = {Pass::forward, Pass::backward, Pass::value_and_grad};

class OpenclTargets : public ImplementationTest {
 protected:
  void SetUp() override {
    if (!shared_context().has_device()) GTEST_SKIP() << "no OpenCL device";
  }
};

/// Makes the targets of rows 2 and 3 wrong.
void spoil_targets(const Case& c, oracle::Problem& p) {
  // One too many, and a negative one that is not ignore_index; in 64 bits one that is 1 in 32.
  const std::int64_t above = c.v;
  const std::int64_t odd = c.label_type == DType::i64 ? (std::int64_t{1} << 32) + 1 : -7;
  const auto k = static_cast<std::size_t>(p.k);
  const auto v = static_cast<std::size_t>(c.v);
  switch (c.targets) {
    case Targets::none:
      return;
    case Targets::labels:
      p.labels[2] = above;
      p.labels[3] = odd;
      return;
    case Targets::one_pair:
      p.target_indices[2] = above;
      p.target_indices[3] = odd;
      return;
    case Targets::pairs:
      p.target_indices[2 * k] = odd;
      p.target_probs[3 * k] = -0.25;
      return;
    case Targets::dense:
      p.targets[2 * v + 5] = -0.25;
      p.targets[3 * v] = std::numeric_limits<double>::quiet_NaN();
      return;
  }
}

/// Targets in device memory cannot be checked beforehand. What a bad one touches is NaN, the rest
/// is as if it were not there, and waiting names the first.
TEST_P(OpenclTargets, ThoseThatAreNoneAreReportedAfterwards) {
  Context& context = shared_context();
  lce::ExecutionOptions execution;
  execution.implementation = GetParam();
  for (const auto& [type, targets] : {std::pair{DType::i32, Targets::labels},
                                      {DType::i64, Targets::labels},
                                      {DType::i64, Targets::one_pair},
                                      {DType::i32, Targets::pairs},
                                      {DType::i32, Targets::dense}}) {
    Case c;
    c.name = "targets_on_device_" + std::to_string(static_cast<int>(targets)) + to_string(type);
    c.place = Place::device;
    c.b = 37;
    c.h = 33;
    c.v = 301;
    c.label_type = type;
    c.targets = targets;
    c.options.reduction = Reduction::none;
    SCOPED_TRACE(c.name);
    Expected e = expected_of(c);
    spoil_targets(c, e.problem);
    e.values = oracle::forward(e.problem);
    e.gradients = oracle::backward(e.problem);
    // Kernels leave nothing but NaN in such a row; the oracle's log-sum-exp needs no target.
    for (const std::size_t row : {2, 3}) {
      for (auto* field :
           {&e.values.lse, &e.values.entropy, &e.values.z_loss, &e.values.max, &e.values.sum}) {
        (*field)[row] = std::numeric_limits<double>::quiet_NaN();
      }
      e.values.argmax[row] = -1;
    }
    for (const Pass pass : passes) {
      Arguments arguments(context, c, e.problem);
      if (pass == Pass::backward) arguments.add_statistics(context, e.values);
      Results results(context, c, e, pass, GetParam());
      Completion done = tessera::run<lce::Operator>(
          context, pass, arguments.inputs<lce::Operator>(pass), results.outputs(),
          results.gradients<lce::Operator>(arguments), c.options, execution);
      try {
        done.wait();
        ADD_FAILURE() << to_string(pass) << ": two rows have no target";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::label_out_of_range) << error.what();
        EXPECT_NE(std::string(error.what()).find("row 2"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find(std::to_string(c.v)), std::string::npos)
            << error.what();
      }
      EXPECT_THROW(done.wait(), Error) << "a second wait throws again";
      results.check(arguments);
    }
  }
}

std::vector<std::string> device_implementations() {
  auto names = implementations_of<lce::Operator>();
  std::erase_if(names, [](const auto& name) { return !name.starts_with("opencl."); });
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, OpenclTargets, testing::ValuesIn(device_implementations()),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OpenclTargets);

}  // namespace
}  // namespace tessera::test
