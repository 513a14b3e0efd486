// SPDX-License-Identifier: Apache-2.0
// Every implementation against PyTorch's float64 autograd (tests/goldens/make_goldens.py), whose
// inputs f32 represents.
#include <gtest/gtest.h>

#include <deque>

#include "tests/support/distillation.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {

/// A golden's numbers as a call's arguments, in memory of its own.
template <class Op>
class GoldenCall {
 public:
  explicit GoldenCall(const Golden& golden) : golden_(golden), options(options_of()) {
    const auto& p = golden.problem;
    for (const auto& input : OperatorTraits<Op>::inputs) {
      if (input.types == ElementTypes::integer) {
        const auto& words = input.shape.rank() > 0 ? p.target_indices : p.labels;
        if (!words.empty()) inputs.*input.view = View::host(words.data(), extents(input.shape));
        continue;
      }
      const auto values = golden.op->values(input.name);
      if (values == nullptr || (p.*values).empty()) continue;
      memory_.emplace_back((p.*values).begin(), (p.*values).end());
      inputs.*input.view = View::host(memory_.back().data(), extents(input.shape));
    }
  }

 private:
  Dims extents(const SymbolicShape& shape) const {
    const auto& p = golden_.problem;
    return shape.extents({p.b}, p.options.reduction != Reduction::none, [&](char letter) {
      return letter == 'H' ? p.h : letter == 'G' ? p.teacher_h : letter == 'K' ? p.k : p.v;
    });
  }
  typename Op::Options options_of() const {
    LossOptions loss = golden_.problem.options;
    loss.wants = every_output<Op>();
    auto result = options_with<Op>(loss);
    if constexpr (std::is_same_v<Op, linear_distillation::Operator>) {
      const auto& d = golden_.problem.distillation;
      result.divergence = static_cast<linear_distillation::Divergence>(d.divergence);
      result.beta = static_cast<float>(d.beta);
      result.temperature = static_cast<float>(d.temperature);
      result.alpha = static_cast<float>(d.alpha);
      result.teacher_logit_scale = static_cast<float>(d.logit_scale);
      result.teacher_logit_soft_cap = static_cast<float>(d.logit_soft_cap);
    }
    return result;
  }

  const Golden& golden_;
  std::deque<std::vector<float>> memory_;

 public:
  typename Op::Inputs inputs{};
  typename Op::Options options;
};

void expect_close(const char* name, const HostTensor& tensor, const std::vector<double>& expected,
                  double scale) {
  ASSERT_EQ(static_cast<std::size_t>(tensor.size()), expected.size()) << name;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double actual = tensor.dtype() == DType::i32
                              ? static_cast<double>(tensor.as<std::int32_t>()[i])
                              : static_cast<double>(tensor.as<float>()[i]);
    if (actual == expected[i]) continue;  // infinities
    EXPECT_NEAR(actual, expected[i], distillation::f32_tolerance * scale)
        << name << "[" << i << "]";
  }
}

class Goldens : public OperatorTest {};

TEST_P(Goldens, AgreeWithPyTorch) {
  const auto& [op, implementation] = GetParam();
  std::size_t compared = 0;
  for (const auto& folder : golden_folders(TESSERA_GOLDENS)) {
    const Golden golden = read_golden(folder);
    if (golden.op != op) continue;
    SCOPED_TRACE(golden.name);
    for_each_loss([&]<class Op>(std::type_identity<Op>) {
      if (op != &test_operator<Op>()) return;
      const GoldenCall<Op> call(golden);
      const auto result =
          value_and_grad(shared_context(), call.inputs, call.options, on<Op>(implementation));
      // Values are differences of numbers of the size of the logits.
      const double largest = distillation::norm_of(golden.expected.at("lse"));
      const auto compare = [&](const char* name, const HostTensor& tensor, double least) {
        const auto found = golden.expected.find(name);
        if (found == golden.expected.end()) return;
        ++compared;
        expect_close(name, tensor, found->second,
                     std::max(least, distillation::norm_of(found->second)));
      };
      for (const auto& output : OperatorTraits<Op>::outputs) {
        compare(output.name, result.*output.owned, std::max(distillation::least_value, largest));
      }
      for (const auto& gradient : OperatorTraits<Op>::gradients) {
        compare(gradient.name, result.*gradient.owned, distillation::least_gradient);
      }
    });
  }
  EXPECT_GE(compared, 28u) << "four goldens of seven arrays";
}

INSTANTIATE_TEST_SUITE_P(All, Goldens,
                         testing::ValuesIn(operators_and_implementations(takes_any_shape)),
                         operator_name);

}  // namespace
}  // namespace tessera::test
