// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>

#include "host/operators/call.hpp"

/// How the public structs of an operator are bound to its description: every argument is a row of
/// an array, which names the member that holds it.
namespace tessera {

template <class Inputs>
struct InputArgument {
  const char* name;
  View Inputs::*view;
  SymbolicShape shape;
  ElementTypes types;
  Reads reads;
  Layout layout = Layout::fixed;
};

template <class Outputs, class Result, class Wants>
struct OutputArgument {
  const char* name;
  MutableView Outputs::*view;
  SymbolicShape shape;
  ElementTypes types;
  HostTensor Result::*owned;       ///< where a call that owns its results leaves it
  bool Wants::*wanted;             ///< whether such a call has it; nullptr: always
  const char* in_place = nullptr;  ///< as operators::Output's, and so is what follows
  Layout layout = Layout::fixed;
};

template <class Operator>
struct GradientArgument {
  const char* name;
  MutableView Operator::Gradients::*view;
  View Operator::Inputs::*of;
  HostTensor Operator::Result::*owned;
  bool Operator::Wants::*wanted;  ///< as OutputArgument's
  std::optional<DType> type;      ///< as operators::Gradient's, and so is what follows
  bool in_place;
};

inline constexpr OptionRange share_range = {.least = 0, .most = 1};

/// An option of an operator: a member of its `Options` or of its `ExecutionOptions`. A default is
/// what a member of a default struct holds.
template <class Options>
struct OptionArgument {
  const char* name;
  const char* help;  ///< what it does, in a few words
  OptionKind kind;
  bool may_be_unset;
  OptionValue (*value)(const Options&);
  void (*set)(Options&, OptionValue);
  OptionRange range;
  std::span<const char* const> choices;  ///< their names in order; empty: a number or an integer
};

/// The options themselves, where a member is one of theirs.
struct WholeOptions {
  static constexpr auto& of(auto& options) noexcept { return options; }
};

/// The kind of an option that is a member of this type. Choices are told by their list.
template <class Held>
constexpr OptionKind option_kind = std::is_same_v<Held, DType>   ? OptionKind::dtype
                                   : std::is_same_v<Held, float> ? OptionKind::number
                                                                 : OptionKind::integer;
template <class Held>
constexpr OptionKind option_kind<std::optional<Held>> = option_kind<Held>;

template <class Held>
OptionValue option_value(const Held& held) {
  if constexpr (requires { held.has_value(); }) {
    return held ? option_value(*held) : OptionValue(Unset());
  } else if constexpr (std::is_same_v<Held, float>) {
    return held;
  } else {
    return static_cast<std::int64_t>(held);
  }
}

/// Describes the option that `member` is, of the part of the options that `Part` gives. A member
/// that is a std::optional may be unset.
template <class Options, auto member, class Part = WholeOptions>
constexpr OptionArgument<Options> option(const char* name, const char* help, OptionRange range = {},
                                         std::span<const char* const> choices = {}) {
  using Held = std::remove_reference_t<decltype(Part::of(std::declval<Options&>()).*member)>;
  return {.name = name,
          .help = help,
          .kind = choices.empty() ? option_kind<Held> : OptionKind::choice,
          .may_be_unset = requires(Held held){held.reset();
}
, .value = [](const Options& options) { return option_value(Part::of(options).*member); },
  .set =
      [](Options& options, OptionValue value) {
        auto& held = Part::of(options).*member;
        const auto assign = [&]<class Given>(Given given) {
          if constexpr (std::is_same_v<Given, Unset>) {
            held = Held();
          } else if constexpr (requires { typename Held::value_type; }) {
            held = static_cast<typename Held::value_type>(given);
          } else {
            held = static_cast<Held>(given);
          }
        };
        std::visit(assign, value);
      },
  .range = range, .choices = choices
};  // namespace tessera
}

/// The same by value, with its default.
template <class Options>
operators::Option described(const OptionArgument<Options>& option) {
  return {option.name,      option.help,  option.kind,   option.may_be_unset,
          option.value({}), option.range, option.choices};
}

/// Specialised for each operator's tag, a struct that names the operator's types:
///
///     struct Operator { using Inputs, Outputs, Gradients, Options, Result, Wants, BlockSizes,
///                             ExecutionOptions; };
///
/// A specialisation has `name`; `passes`; arrays of the structs above: `inputs` (the first gives
/// the leading axes), `outputs`, `gradients`, `options`, and `execution_options`, those of its
/// ExecutionOptions that other operators do not have; `wants(options)`; `accumulates(gradients,
/// i)`, whether the gradient at place i of the array is added to what is there; and `behind()`,
/// what checks and runs its calls.
template <class Operator>
struct OperatorTraits;

/// The input that a gradient is of.
template <class Operator>
constexpr const InputArgument<typename Operator::Inputs>& input_of(
    const GradientArgument<Operator>& gradient) {
  const auto& inputs = OperatorTraits<Operator>::inputs;
  std::size_t at = 0;
  while (inputs[at].view != gradient.of) ++at;  // a gradient is of one of them
  return inputs[at];
}

/// Whether a call with these wants that owns its results has this output or gradient.
template <class Argument, class Wants>
constexpr bool is_wanted(const Argument& result, const Wants& wants) {
  return result.wanted == nullptr || wants.*result.wanted;
}

/// The elements of two arrays, one after the other.
template <class T, std::size_t a_size, std::size_t b_size>
constexpr std::array<T, a_size + b_size> joined(const std::array<T, a_size>& a,
                                                const std::array<T, b_size>& b) {
  const auto join = [&]<std::size_t... i, std::size_t... j>(std::index_sequence<i...>,
                                                            std::index_sequence<j...>) {
    return std::array<T, a_size + b_size>{a[i]..., b[j]...};
  };
  return join(std::make_index_sequence<a_size>(), std::make_index_sequence<b_size>());
}

}  // namespace tessera
