// SPDX-License-Identifier: Apache-2.0
#include "python/src/torch/operation.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <variant>

namespace tessera::torch_operators {
namespace {

using operators::Description;
using operators::Option;

/// Without those of shards, whose calls PyTorch's autograd has no form for, and of types.
bool is_offered(const Option& option) {
  return !std::string_view(option.name).starts_with("vocab_") && option.kind != OptionKind::dtype;
}

/// The loss, or what else a call returns by default, and what backward can be given of it; all
/// outputs, where there is no backward.
bool is_returned(const Description& op, const operators::Output& output) {
  return output.is_wanted || op.input(output.name) != nullptr || !op.has(Pass::backward);
}

/// The shortest text that is read as this number.
std::string text_of(float number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

std::string default_of(const Option& option) {
  if (std::holds_alternative<Unset>(option.standard)) return "None";
  if (const auto* number = std::get_if<float>(&option.standard)) return text_of(*number);
  const auto integer = std::get<std::int64_t>(option.standard);
  if (option.kind != OptionKind::choice) return std::to_string(integer);
  return std::string("\"") + option.choices[static_cast<std::size_t>(integer)] + "\"";
}

std::string declaration(const Option& option) {
  const char* type = option.kind == OptionKind::number    ? "float"
                     : option.kind == OptionKind::integer ? "int"
                                                          : "str";
  return std::string(type) + (option.may_be_unset ? "? " : " ") + option.name + "=" +
         default_of(option);
}

}  // namespace

Operation::Operation(const Description& of, Pass a_pass) : op(&of), pass(a_pass) {
  const bool has_others = std::any_of(op->inputs.begin(), op->inputs.end(), [](const auto& input) {
    return input.reads == Reads::in_place_of_labels;
  });
  for (std::size_t i = 0; i < op->inputs.size(); ++i) {
    const auto& input = op->inputs[i];
    if (!reads_in(pass, input.reads)) continue;
    const bool is_needed =
        input.is_operand() || input.reads == Reads::by_backward ||
        (input.reads == Reads::always && !has_others);  // labels, where nothing replaces them
    arguments.push_back({Kind::input, i, !is_needed});
  }
  for (std::size_t i = 0; i < op->options.size(); ++i) {
    if (is_offered(op->options[i])) arguments.push_back({Kind::option, i, false});
  }
  if (has_gradients()) {
    for (std::size_t i = 0; i < op->gradients.size(); ++i) {
      arguments.push_back({Kind::wants_gradient, i, false});
    }
  }
  arguments.push_back({Kind::implementation, 0, false});
  arguments.push_back({Kind::workspace_bytes, 0, false});
  if (pass == Pass::backward) return;
  for (std::size_t i = 0; i < op->outputs.size(); ++i) {
    if (is_returned(*op, op->outputs[i])) outputs.push_back(i);
  }
}

std::string Operation::schema() const {
  // Defaults may only stand behind the last input that has none.
  std::size_t last_needed = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].kind == Kind::input && !arguments[i].is_optional) last_needed = i;
  }
  std::string text = std::string(op->name) + "_" + to_string(pass) + "(";
  bool named = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& [kind, at, is_optional] = arguments[i];
    if (i > 0) text += ", ";
    if (kind != Kind::input && !named) text += "*, ";
    named = kind != Kind::input;
    switch (kind) {
      case Kind::input:
        text += std::string(is_optional ? "Tensor? " : "Tensor ") + op->inputs[at].name;
        if (is_optional && i > last_needed) text += "=None";
        break;
      case Kind::option:
        text += declaration(op->options[at]);
        break;
      case Kind::wants_gradient:
        text += std::string("bool wants_") + op->gradients[at].name + "=True";
        break;
      case Kind::implementation:
        text += "str implementation=\"\"";
        break;
      case Kind::workspace_bytes:
        text += "int? workspace_bytes=None";
        break;
    }
  }
  std::string results;
  const auto add = [&](const char* name) {
    results += (results.empty() ? "Tensor " : ", Tensor ") + std::string(name);
  };
  for (const std::size_t at : outputs) add(op->outputs[at].name);
  if (has_gradients()) {
    for (const auto& gradient : op->gradients) add(gradient.name);
  }
  return text + ") -> (" + results + ")";
}

}  // namespace tessera::torch_operators
