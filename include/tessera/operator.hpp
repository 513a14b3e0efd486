// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/cost_estimate.hpp"
#include "tessera/execution.hpp"
#include "tessera/loss.hpp"
#include "tessera/view.hpp"

/// What an operator says of itself, for code that works with any of them: bindings, tuners, the
/// programs, the tests, and the library's own checks. An operator's header ends with its
/// `OperatorTraits`; tessera/operators.hpp lists the operators. Who calls an operator by its name
/// needs none of this.
namespace tessera {

/// Extents of an argument in symbols, as the operators' headers write them.
///
/// "[..., H]": leading axes, then H. "..." is the leading axes of the operator's first input, a
/// capital letter an extent of the problem (T: columns of the whole vocabulary, V without shards;
/// K: pairs of a soft target), a digit itself. "() or [...]" is the shape of the loss: leading axes
/// with Reduction::none, else no axes.
class SymbolicShape {
 public:
  consteval SymbolicShape(const char* text) : text_(text), of_loss_(text[0] == '(') {
    for (const char* at = text; *at != '\0'; ++at) {
      if (*at == '.') leading_ = true;
      if (of_loss_) continue;
      if ((*at >= 'A' && *at <= 'Z') || (*at >= '1' && *at <= '9')) {
        axes_[static_cast<std::size_t>(rank_++)] = *at;
      }
    }
  }

  constexpr const char* text() const noexcept { return text_; }
  constexpr bool has_leading() const noexcept { return leading_; }
  constexpr bool is_of_loss() const noexcept { return of_loss_; }
  /// Axes behind the leading ones.
  constexpr int rank() const noexcept { return rank_; }
  constexpr char axis(int at) const noexcept { return axes_[static_cast<std::size_t>(at)]; }

  /// The extents; `extent_of(letter)` gives those of the problem.
  template <class ExtentOf>
  Dims extents(const Dims& leading, Reduction reduction, const ExtentOf& extent_of) const {
    if (of_loss_) return reduction == Reduction::none ? leading : Dims();
    Dims result;
    if (leading_) result = leading;
    for (int i = 0; i < rank_; ++i) {
      result.push_back(axis(i) <= '9' ? axis(i) - '0' : extent_of(axis(i)));
    }
    return result;
  }

 private:
  const char* text_;
  std::array<char, 4> axes_{};
  int rank_ = 0;
  bool leading_ = false;
  bool of_loss_ = false;
};

/// Element types that an argument may have.
enum class ElementTypes {
  floating,  ///< f32, bf16, f16
  integer,   ///< i32, i64
  f32,
  any
};

/// When an input is read.
enum class Reads {
  always,              ///< and has to be given; labels, or what stands in their place
  usually,             ///< by every pass; has to be given, or what stands in its place
  in_place_of_usual,   ///< where given, by every pass, in place of what is read `usually`
  where_given,         ///< by every pass
  in_place_of_labels,  ///< where given, by every pass: all of them, or labels, not both
  with_gradients,      ///< where given, by backward and value_and_grad
  in_backward,         ///< by backward alone, which needs one of these
  saved_besides        ///< where given, by backward alone
};

template <class Inputs>
struct InputArgument {
  const char* name;
  View Inputs::*view;
  SymbolicShape shape;
  ElementTypes types;
  Reads reads;
};

template <class Outputs, class Result>
struct OutputArgument {
  const char* name;
  MutableView Outputs::*view;
  SymbolicShape shape;
  ElementTypes types;
  HostTensor Result::*owned;  ///< where a call that owns its results leaves it
  bool Wants::*wanted;        ///< whether such a call has it; nullptr: always
};

/// A gradient has the shape of the input that it is of, and cannot be asked for without it.
template <class Operator>
struct GradientArgument {
  const char* name;
  MutableView Operator::Gradients::*view;
  View Operator::Inputs::*of;
  HostTensor Operator::Result::*owned;
  bool Wants::*wanted;  ///< as OutputArgument's
  /// Its type where no view says another; nothing: the type of the input.
  std::optional<DType> type;
  bool in_place;  ///< its view may be the very view of the input
};

/// The loss's half of an operator's options: those, or their member `loss`.
template <class Options>
constexpr auto& loss_options(Options& options) noexcept {
  if constexpr (requires { options.loss; }) {
    return options.loss;
  } else {
    return options;
  }
}

/// What an option is: a number of f32, an integer, or one of a list of names.
/// A choice is its place in the list; what may be unset is 0 if so, else its place + 1.
using OptionValue = std::variant<float, std::int64_t>;

/// The values that an option may have; a number is finite, whatever the limits.
struct OptionRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool below_most = false;  ///< `most` itself is none of them
  const char* hint = "";    ///< what a message says behind the limit: ", which turns it off"
};

inline constexpr OptionRange share_range = {.least = 0, .most = 1};
inline constexpr OptionRange soft_cap_range = {.least = 0, .hint = ", which turns it off"};

/// An option of an operator: a member of its `Options`, of what they have of every loss, or of its
/// `ExecutionOptions`. A default is what a member of a default struct holds.
template <class Options>
struct OptionArgument {
  const char* name;
  const char* help;  ///< what it does, in a few words
  OptionValue (*value)(const Options&);
  void (*set)(Options&, OptionValue);
  OptionRange range;
  std::span<const char* const> choices;  ///< their names in order; empty: a number or an integer
};

/// A member of an operator's options, or of their half that every loss has.
template <auto member, class Options>
constexpr auto& option_in(Options& options) noexcept {
  if constexpr (requires { options.*member; }) {
    return options.*member;
  } else {
    return loss_options(options).*member;
  }
}

/// Describes the option that `member` is.
template <class Options, auto member>
constexpr OptionArgument<Options> option(const char* name, const char* help, OptionRange range = {},
                                         std::span<const char* const> choices = {}) {
  return {.name = name,
          .help = help,
          .value = [](const Options& options) -> OptionValue {
            const auto& held = option_in<member>(options);
            if constexpr (requires { held.has_value(); }) {
              return held ? static_cast<std::int64_t>(*held) + 1 : 0;
            } else if constexpr (std::is_same_v<decltype(held), const float&>) {
              return held;
            } else {
              return static_cast<std::int64_t>(held);
            }
          },
          .set =
              [](Options& options, OptionValue value) {
                auto& held = option_in<member>(options);
                using Held = std::remove_reference_t<decltype(held)>;
                const auto assign = [&](auto given) {
                  if constexpr (requires { held.has_value(); }) {
                    held.reset();
                    if (given > 0) held = static_cast<typename Held::value_type>(given - 1);
                  } else {
                    held = static_cast<Held>(given);
                  }
                };
                std::visit(assign, value);
              },
          .range = range,
          .choices = choices};
}

/// Specialised for each operator's tag, a struct that names the operator's types:
///
///     struct Operator { using Inputs, Outputs, Gradients, Options, Result, BlockSizes,
///                             ExecutionOptions; };
///
/// A specialisation has `name`; `passes`; arrays of the structs above: `inputs` (the first gives
/// the leading axes), `outputs`, `gradients`, `options`, and `execution_options`, those of its
/// ExecutionOptions that other operators do not have; `implementations()`; and
/// `accumulates(gradients, i)`, whether the gradient at place i of the array is added to what is
/// there, and `accumulate(gradients, i)`, which says so. The operator's functions are found beside
/// its `Inputs`: `forward(context, inputs, ...)`.
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

/// The inputs that every loss has, class weights where `Inputs` has such a member; it is any struct
/// with the others.
template <class Inputs>
inline constexpr auto loss_inputs = [] {
  using Argument = InputArgument<Inputs>;
  constexpr auto classes = [] {
    if constexpr (requires(Inputs in) { in.class_weight; }) {
      return std::array<Argument, 1>{{{"class_weight", &Inputs::class_weight, "[T]",
                                       ElementTypes::floating, Reads::where_given}}};
    } else {
      return std::array<Argument, 0>{};
    }
  }();
  constexpr std::array<Argument, 2> first = {{
      {"labels", &Inputs::labels, "[...]", ElementTypes::integer, Reads::always},
      {"weight", &Inputs::weight, "[...]", ElementTypes::floating, Reads::where_given},
  }};
  constexpr std::array<Argument, 7> others = {{
      {"dloss", &Inputs::dloss, "() or [...]", ElementTypes::floating, Reads::with_gradients},
      {"dlse", &Inputs::dlse, "[...]", ElementTypes::floating, Reads::with_gradients},
      {"lse", &Inputs::lse, "[...]", ElementTypes::f32, Reads::in_backward},
      {"statistics", &Inputs::statistics, "[..., 2]", ElementTypes::f32, Reads::in_backward},
      {"target_indices", &Inputs::target_indices, "[..., K]", ElementTypes::integer,
       Reads::in_place_of_labels},
      {"target_probs", &Inputs::target_probs, "[..., K]", ElementTypes::floating,
       Reads::in_place_of_labels},
      {"targets", &Inputs::targets, "[..., T]", ElementTypes::floating, Reads::in_place_of_labels},
  }};
  return joined(joined(first, classes), others);
}();

/// An operator's `own` inputs, then those of every loss.
template <class Inputs, std::size_t count>
constexpr auto with_loss_inputs(const InputArgument<Inputs> (&own)[count]) {
  return joined(std::to_array(own), loss_inputs<Inputs>);
}

/// The outputs that every loss has.
inline constexpr std::array<OutputArgument<Outputs, LossResult>, 7> loss_outputs = {{
    {"loss", &Outputs::loss, "() or [...]", ElementTypes::f32, &LossResult::loss, nullptr},
    {"lse", &Outputs::lse, "[...]", ElementTypes::f32, &LossResult::lse, &Wants::lse},
    {"argmax", &Outputs::argmax, "[...]", ElementTypes::integer, &LossResult::argmax,
     &Wants::argmax},
    {"label_logprob", &Outputs::label_logprob, "[...]", ElementTypes::f32,
     &LossResult::label_logprob, &Wants::label_logprob},
    {"entropy", &Outputs::entropy, "[...]", ElementTypes::f32, &LossResult::entropy,
     &Wants::entropy},
    {"z_loss", &Outputs::z_loss, "[...]", ElementTypes::f32, &LossResult::z_loss, &Wants::z_loss},
    {"statistics", &Outputs::statistics, "[..., 2]", ElementTypes::f32, &LossResult::statistics,
     &Wants::statistics},
}};

inline constexpr std::size_t loss_output_count = loss_outputs.size();

/// The outputs of every loss, then an operator's `own`; Outputs and Result derive from the loss's.
template <class Outputs, class Result, std::size_t count>
constexpr auto with_loss_outputs(const OutputArgument<Outputs, Result> (&own)[count]) {
  const auto widened = [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::array<OutputArgument<Outputs, Result>, loss_output_count>{
        OutputArgument<Outputs, Result>{loss_outputs[i].name, loss_outputs[i].view,
                                        loss_outputs[i].shape, loss_outputs[i].types,
                                        loss_outputs[i].owned, loss_outputs[i].wanted}...};
  };
  return joined(widened(std::make_index_sequence<loss_output_count>()), std::to_array(own));
}

/// What asks for every optional one of these outputs.
template <class OutputArguments>
constexpr Wants every_one(const OutputArguments& outputs) {
  Wants wants;
  for (const auto& output : outputs) {
    if (output.wanted != nullptr) wants.*output.wanted = true;
  }
  return wants;
}

/// What asks for every optional output of a loss; of an operator, which may have others.
constexpr Wants every_output() { return every_one(loss_outputs); }
template <class Operator>
constexpr Wants every_output() {
  return every_one(OperatorTraits<Operator>::outputs);
}

/// Whether an operator has a pass.
template <class Operator>
constexpr bool has_pass(Pass pass) {
  for (const Pass each : OperatorTraits<Operator>::passes) {
    if (each == pass) return true;
  }
  return false;
}

/// The passes of every loss.
inline constexpr std::array loss_passes = {Pass::forward, Pass::backward, Pass::value_and_grad,
                                           Pass::forward_partial};

/// Whether a call has to have an input, where no other stands in its place.
constexpr bool is_needed(Reads reads) noexcept {
  return reads == Reads::always || reads == Reads::usually;
}

/// Whether `pass` reads an input that is read as `reads` says.
constexpr bool reads_in(Pass pass, Reads reads) noexcept {
  if (reads == Reads::with_gradients) return has_gradients(pass);
  const bool saved = reads == Reads::in_backward || reads == Reads::saved_besides;
  return !saved || pass == Pass::backward;
}

/// An operator's options, the default but for their loss's half.
template <class Operator>
typename Operator::Options options_with(const LossOptions& loss) {
  if constexpr (requires(typename Operator::Options o) { o.loss; }) {
    typename Operator::Options options;
    options.loss = loss;
    return options;
  } else {
    return loss;
  }
}

/// The options of every loss.
template <class Options>
inline constexpr std::array<OptionArgument<Options>, 8> all_loss_options = {{
    option<Options, &LossOptions::logsumexp_weight>("logsumexp_weight",
                                                    "weight of the z-loss, lse^2"),
    option<Options, &LossOptions::logit_scale>("logit_scale", "multiplies the logits"),
    option<Options, &LossOptions::logit_soft_cap>(
        "logit_soft_cap", "cap * tanh(logit / cap); 0: off", soft_cap_range),
    option<Options, &LossOptions::label_smoothing>("label_smoothing", "in [0, 1]", share_range),
    option<Options, &LossOptions::ignore_index>("ignore_index",
                                                "rows with this label do not count"),
    option<Options, &LossOptions::reduction>("reduction", "how per-token losses become the loss",
                                             {}, reduction_names),
    option<Options, &LossOptions::vocab_offset>("vocab_offset", "first column of this shard",
                                                {.least = 0}),
    option<Options, &LossOptions::vocab_size_total>(
        "vocab_size_total", "columns of the whole vocabulary; 0: this call has it all",
        {.least = 0, .hint = " (no shard)"}),
}};

/// An operator's `own` options, then those of every loss.
template <class Options, std::size_t count>
constexpr auto with_loss_options(const OptionArgument<Options> (&own)[count]) {
  return joined(std::to_array(own), all_loss_options<Options>);
}

/// The operator's call with views for `pass`, which is not forward_partial.
template <class Operator>
Completion run(Context& context, Pass pass, const typename Operator::Inputs& inputs,
               const typename Operator::Outputs& outputs,
               const typename Operator::Gradients& gradients,
               const typename Operator::Options& options,
               const typename Operator::ExecutionOptions& execution) {
  // By argument-dependent lookup, in the operator's namespace.
  if (pass == Pass::forward) return forward(context, inputs, outputs, options, execution);
  if (pass == Pass::backward) return backward(context, inputs, gradients, options, execution);
  return value_and_grad(context, inputs, outputs, gradients, options, execution);
}

}  // namespace tessera
