// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "host/catalog/operators.hpp"
#include "tessera/tessera.hpp"
#include "tests/support/test_operator.hpp"

namespace tessera::test {

/// Which inputs a call gives: those that an operator must have, those that are not of every loss,
/// or all that the pass reads (labels rather than soft targets, and in backward the saved
/// statistics rather than lse).
enum class Given { required, own, all };

/// Every operator, for TYPED_TEST_SUITE, and its name.
template <class Tuple>
struct TypesOf;
template <class... Operator>
struct TypesOf<std::tuple<Operator...>> {
  using type = testing::Types<Operator...>;
};

using OperatorTypes = TypesOf<LossOperators>::type;
struct OperatorName {
  template <class Operator>
  static std::string GetName(int) {
    return OperatorTraits<Operator>::name;
  }
};

/// Another value of an option, within its range.
template <class Option>
OptionValue other_value(const Option& option, const OptionValue& value) {
  if (!option.choices.empty()) return std::get<std::int64_t>(value) == 0 ? std::int64_t{1} : 0;
  if (const auto* number = std::get_if<float>(&value)) return *number == 0.25f ? 0.75f : 0.25f;
  if (std::holds_alternative<Unset>(value)) return std::int64_t{1};
  return std::get<std::int64_t>(value) == 3 ? std::int64_t{4} : 3;
}

/// Numbers in host memory for the inputs of an operator, and calls with them that are correct, by
/// OperatorTraits alone.
template <class Operator>
class SmallCall {
  using Traits = OperatorTraits<Operator>;
  using Inputs = typename Operator::Inputs;

 public:
  /// `labels` are those of the rows, below `v`.
  SmallCall(const Dims& leading_axes, std::int64_t hidden, std::int64_t columns,
            std::vector<std::int32_t> labels_of_rows)
      : leading(leading_axes), h(hidden), v(columns), labels(std::move(labels_of_rows)) {
    float step = 0.37f;
    for (const auto& input : Traits::inputs) {
      auto& values = numbers[input.name];
      values.resize(static_cast<std::size_t>(
          input.shape.is_reducible() ? leading.product() : extents(input.shape).product()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(step * static_cast<float>(i + 1));
        if (input.reads == Reads::in_place_of_labels) values[i] = std::abs(values[i]) / 3.0f;
      }
      step += 0.17f;
    }
    for (std::int64_t i = 0; i < 3 * leading.product(); ++i) {
      words.push_back(static_cast<std::int32_t>((i / 3 + i % 3) % v));
    }
  }

  /// Extents of an argument; an axis that is none of every loss's is of 3.
  Dims extents(const SymbolicShape& shape) const {
    return shape.extents(leading, options.reduction != Reduction::none, [&](char letter) {
      if (letter == 'H') return h;
      return letter == 'V' || letter == 'T' ? v : std::int64_t{3};
    });
  }
  View view(const InputArgument<Inputs>& input) const {
    if (input.types == ElementTypes::integer) {
      return View::host(input.shape.rank() > 0 ? words.data() : labels.data(),
                        extents(input.shape));
    }
    return View::host(numbers.at(input.name).data(), extents(input.shape));
  }

  Inputs inputs(Pass pass, Given given) const {
    Inputs result;
    for (const auto& input : Traits::inputs) {
      const bool required = is_needed(input.reads);
      bool wanted = required;
      const bool instead = input.reads == Reads::in_place_of_usual;
      if (given == Given::own) wanted = required || (!is_of_every_loss(input.name) && !instead);
      if (given == Given::all) {
        wanted = std::string_view(input.name) != "lse" &&
                 input.reads != Reads::in_place_of_labels && !instead;
      }
      // Backward needs one of the two.
      if (pass == Pass::backward && std::string_view(input.name) == "statistics") wanted = true;
      if (wanted && reads_in(pass, input.reads)) result.*input.view = view(input);
    }
    return result;
  }

  /// Soft targets in place of the labels: these, and what they need beside them.
  void soften(Inputs& inputs, const InputArgument<Inputs>& target) const {
    inputs.labels = {};
    for (const auto& input : Traits::inputs) {
      const bool pair = input.shape.rank() > 0 && input.shape.axis(0) == target.shape.axis(0);
      if (input.reads == Reads::in_place_of_labels && pair) inputs.*input.view = view(input);
    }
  }

  /// Leaves out what another input stands in the place of.
  void leave_out_usual(Inputs& inputs) const {
    for (const auto& input : Traits::inputs) {
      if (input.reads == Reads::usually) inputs.*input.view = {};
    }
  }

  /// What backward reads of a forward of the inputs that are `given`.
  void compute_statistics(Given given) {
    Context host({.host_only = true});
    typename Operator::ExecutionOptions execution;
    execution.implementation = "reference";
    auto wanting = all_options();
    loss_options(wanting).wants = every_output<Operator>();
    const auto result = forward(host, inputs(Pass::forward, given), wanting, execution);
    for (const auto& input : Traits::inputs) {
      for (const auto& output : Traits::outputs) {
        if (std::string_view(output.name) != input.name) continue;
        const auto values = (result.*output.owned).template as<float>();
        numbers[input.name].assign(values.begin(), values.end());
      }
    }
  }

  Dims leading;
  std::int64_t h, v;
  /// The options with those of its loss.
  typename Operator::Options all_options() const { return options_with<Operator>(options); }
  LossOptions options{};
  std::vector<std::int32_t> labels;
  std::vector<std::int32_t> words;  ///< three of each row, from `v` of 3 on distinct
  /// By the input's name.
  std::map<std::string, std::vector<float>, std::less<>> numbers;
};

}  // namespace tessera::test
