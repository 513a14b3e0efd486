// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/compare.hpp"
#include "tests/support/problem.hpp"
#include "tests/support/tolerance.hpp"

namespace tessera::test {

/// A case's problem and what the oracle says of it; computed once per process.
struct Expected {
  oracle::Problem problem;
  oracle::Values values;
  oracle::Gradients gradients;
  ValueTolerance tolerance;
};
const Expected& expected_of(const Case& c);
/// Gives up what is kept of a case that will not come again.
void forget(const Case& c);

/// The views of one call's results, poisoned, and their comparison.
class Results {
 public:
  Results(Context& context, const Case& c, const Expected& expected, Pass pass,
          const std::string& implementation);

  /// The memory of an output or gradient of the case's operator, empty where it is not asked for.
  Argument& operator[](std::string_view name) { return memory_[name]; }
  const Argument& operator[](std::string_view name) const { return memory_[name]; }

  template <class Operator>
  typename Operator::Outputs outputs() const {
    typename Operator::Outputs all;
    for (const auto& output : OperatorTraits<Operator>::outputs) {
      all.*output.view = memory_[output.name].mutable_view();
    }
    return all;
  }
  /// Of a loss without outputs of its own.
  Outputs outputs() const;
  /// For a pass without gradients: none.
  template <class Operator>
  typename Operator::Gradients gradients(const Arguments& arguments) const;
  /// Copies owned results into the memory that `check` reads: every loss's, or an operator's.
  void take(const LossResult& owned);
  template <class Operator, class Owned>
  void take(const Owned& owned) {
    take(static_cast<const LossResult&>(owned));
    if constexpr (std::is_same_v<Owned, typename Operator::Result>) {
      const auto& all = OperatorTraits<Operator>::outputs;
      for (std::size_t i = loss_output_count; i < all.size(); ++i) {
        take_one(owned.*all[i].owned, all[i].name);
      }
    }
  }
  /// Adds gtest failures for everything that deviates, was not written, or was written beside.
  void check(Arguments& arguments);
  /// Adds a failure for every output that a refused call has written to.
  void check_untouched(Arguments& arguments);
  SummaryKey key() const;

 private:
  void make_gradients(Context& context);
  void take_one(const HostTensor& owned, const char* name);
  void check_values();
  void check_argmax();
  void check_statistics();
  void check_divergence_statistics();
  void check_gradients(const Arguments& arguments);
  void check_surroundings();

  const Case& case_;
  const Expected& expected_;
  Pass pass_;
  std::string implementation_;
  NamedArguments memory_;
  /// What accumulate adds to, by name and flat index.
  std::map<std::string, std::vector<double>, std::less<>> bases_;
};

/// Sets an operator's `accumulate` to the gradients of `bits`, of GradientBit.
template <class Accumulate>
void set_accumulate(Accumulate& to, unsigned bits) {
  if constexpr (std::is_same_v<Accumulate, bool>) {
    to = bits != 0;
  } else {
    to = Accumulate::none;
    if ((bits & grad_x_bit) != 0) to = to | Accumulate::grad_x;
    if ((bits & grad_w_bit) != 0) to = to | Accumulate::grad_w;
    if ((bits & grad_bias_bit) != 0) to = to | Accumulate::grad_bias;
  }
}

template <class Operator>
typename Operator::Gradients Results::gradients(const Arguments& arguments) const {
  using Traits = OperatorTraits<Operator>;
  typename Operator::Gradients result;
  if (!has_gradients(pass_)) return result;
  set_accumulate(result.accumulate, case_.accumulate);
  for (std::size_t i = 0; i < Traits::gradients.size(); ++i) {
    const auto& gradient = Traits::gradients[i];
    const bool in_place = case_.in_place && i == 0;
    result.*gradient.view = in_place ? arguments[Traits::inputs[0].name].mutable_view()
                                     : (*this)[gradient.name].mutable_view();
    EXPECT_EQ(Traits::accumulates(result, i), (case_.accumulate >> i & 1u) != 0) << gradient.name;
  }
  return result;
}

}  // namespace tessera::test
