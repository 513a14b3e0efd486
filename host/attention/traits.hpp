// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "host/operators/traits.hpp"
#include "tessera/attention.hpp"

namespace tessera::attention {

/// The operator as a type (host/operators/traits.hpp).
struct Operator {
  using Inputs = attention::Inputs;
  using Outputs = attention::Outputs;
  using Gradients = attention::Gradients;
  using Options = attention::Options;
  using Result = attention::Result;
  using Wants = attention::Wants;
  using BlockSizes = attention::BlockSizes;
  using ExecutionOptions = attention::ExecutionOptions;
};

/// In the order of Causal.
inline constexpr std::array<const char*, 3> causal_names = {"no", "lower_right", "upper_left"};

}  // namespace tessera::attention

template <>
struct tessera::OperatorTraits<tessera::attention::Operator> : attention::Operator {
  static constexpr const char* name = "attention";
  static constexpr std::array passes = {Pass::forward};
  static constexpr std::array<InputArgument<Inputs>, 7> inputs = {{
      {"q", &Inputs::q, "[..., Q, S, D]", ElementTypes::floating, Reads::always, Layout::heads},
      {"k", &Inputs::k, "[..., K, T, D]", ElementTypes::floating, Reads::always, Layout::heads},
      {"v", &Inputs::v, "[..., K, T, E]", ElementTypes::floating, Reads::always, Layout::heads},
      {"bias", &Inputs::bias, "[...|1, Q|1, S|1, T|1]", ElementTypes::floating, Reads::where_given},
      {"kv_lengths", &Inputs::kv_lengths, "[...]", ElementTypes::integer, Reads::where_given},
      {"sinks", &Inputs::sinks, "[Q]", ElementTypes::floating, Reads::where_given},
      {"alibi_slopes", &Inputs::alibi_slopes, "[Q]", ElementTypes::floating, Reads::where_given},
  }};
  static constexpr std::array<OutputArgument<Outputs, Result, Wants>, 2> outputs = {{
      {"y", &Outputs::y, "[..., Q, S, E]", ElementTypes::floating, &Result::y, nullptr, nullptr,
       Layout::heads},
      {"lse", &Outputs::lse, "[..., Q, S]", ElementTypes::f32, &Result::lse, &Wants::lse},
  }};
  static constexpr std::array<GradientArgument<Operator>, 0> gradients{};
  static constexpr auto options = std::to_array({
      option<Options, &Options::scale>("scale", "of q.k; unset: 1 / sqrt(D)"),
      option<Options, &Options::causal>(
          "causal", "whether a query sees no key behind its place, and where the queries stand", {},
          attention::causal_names),
      option<Options, &Options::window_left>("window_left", "keys before its own that a query sees",
                                             {.least = -1, .hint = ", which sees all of them"}),
      option<Options, &Options::window_right>("window_right",
                                              "keys behind its own that a query sees",
                                              {.least = -1, .hint = ", which sees all of them"}),
      option<Options, &Options::logit_soft_cap>("logit_soft_cap", "of scale q.k; 0: none",
                                                {.least = 0, .hint = ", which turns it off"}),
  });
  static constexpr std::array<OptionArgument<ExecutionOptions>, 0> execution_options{};
  static const Wants& wants(const Options& given) { return given.wants; }
  static bool accumulates(const Gradients&, std::size_t) { return false; }
  static const operators::AnyOperator& behind();  ///< api.cpp
};
