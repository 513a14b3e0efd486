// SPDX-License-Identifier: Apache-2.0
#include "programs/problem.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cctype>

namespace tessera::programs {
namespace {

/// A letter, and the one whose extent it has where a command line says nothing of it.
constexpr std::pair<char, char> follows[] = {{'T', 'S'}, {'K', 'Q'}, {'E', 'D'}, {'G', 'H'}};

/// The extent of a letter that is left out: that of the one it follows, else 1.
std::int64_t extent_left_out(const ProblemExtents& extents, char letter) {
  for (const auto& [behind, before] : follows) {
    if (behind == letter && extents.has(before)) return extents[before];
  }
  return 1;
}

/// "causal=lower_right".
SetOption parse_set(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw CLI::ValidationError("--set", fmt::format("'{}' is not NAME=VALUE", text));
  }
  return {.name = text.substr(0, equals), .text = text.substr(equals + 1)};
}

}  // namespace

std::string letters_of(const Description& op) {
  std::string letters = "B";
  for (const auto& input : op.inputs) {
    for (int axis = 0; is_needed(input.reads) && axis < input.shape.rank(); ++axis) {
      const char letter = input.shape.axis(axis);
      if (letter > '9' && letters.find(letter) == std::string::npos) letters += letter;
    }
  }
  return letters;
}

bool has_letters(const std::string& text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  return at(0) >= 'A' && at(0) <= 'Z' && (std::isdigit(at(1)) != 0 || at(1) == '-');
}

ProblemExtents parse_letters(const std::string& option, const std::string& text) {
  ProblemExtents extents;
  for (const auto& item : split(option, text, '/')) {
    if (!has_letters(item)) {
      throw CLI::ValidationError(
          option, fmt::format("'{}' in '{}' is no capital letter with its extent, such as S2048",
                              item, text));
    }
    const char letter = item.front();
    if (extents.has(letter)) {
      throw CLI::ValidationError(option, fmt::format("'{}' has {} twice", text, letter));
    }
    const std::int64_t extent = parse_integer(option, item.substr(1));
    if (extent < 0) {
      throw CLI::ValidationError(option, fmt::format("'{}' has a negative extent", text));
    }
    extents[letter] = extent;
  }
  return extents;
}

void check_letters(const std::string& option, const ProblemExtents& given,
                   const std::vector<const Description*>& ops) {
  std::string known;
  for (const auto* op : ops) known += letters_of(*op);
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    if (!given.has(letter) || known.find(letter) != std::string::npos) continue;
    std::string text;
    for (const auto* op : ops) {
      text += fmt::format("{}{} has {}", text.empty() ? "" : ", ", op->name,
                          fmt::join(letters_of(*op), " "));
    }
    throw CLI::ValidationError(option, fmt::format("there is no letter {}: {}", letter, text));
  }
}

ProblemExtents completed(const Description& op, const ProblemExtents& given) {
  ProblemExtents extents;
  for (const char letter : letters_of(op)) {
    if (given.has(letter)) extents[letter] = given[letter];
  }
  const ProblemExtents own = extents;
  for (const char letter : letters_of(op)) {
    if (!own.has(letter)) extents[letter] = extent_left_out(own, letter);
  }
  return extents;
}

std::string telling_letters(const Description& op, const ProblemExtents& extents) {
  std::string letters = letters_of(op);
  std::erase_if(letters, [&](char letter) {
    return std::any_of(std::begin(follows), std::end(follows), [&](const auto& pair) {
      return pair.first == letter && extents[letter] == extents[pair.second];
    });
  });
  return letters;
}

std::string text_of(const Description& op, const ProblemExtents& extents) {
  std::string text;
  for (const char letter : telling_letters(op, extents)) {
    text += fmt::format("{}{}{}", text.empty() ? "" : "/", letter, extents[letter]);
  }
  return text;
}

OptionValue value_of(const Description& op, const SetOption& set) {
  const std::string name = fmt::format("--set {}", set.name);
  const auto* option = op.option(set.name);
  if (option == nullptr) {
    std::vector<std::string> names;
    for (const auto& each : op.options) names.emplace_back(each.name);
    throw CLI::ValidationError("--set", fmt::format("{} has no option '{}'; it has {}", op.name,
                                                    set.name, fmt::join(names, ", ")));
  }
  if (option->may_be_unset && set.text == "unset") return Unset();
  if (option->kind == OptionKind::integer) return parse_integer(name, set.text);
  if (option->kind == OptionKind::number) return parse_number(name, set.text);
  std::vector<std::string> choices(option->choices.begin(), option->choices.end());
  if (option->kind == OptionKind::dtype) {
    // In the order of their values.
    for (const DType type : {DType::f32, DType::bf16, DType::f16})
      choices.push_back(to_string(type));
  }
  const auto found = std::find(choices.begin(), choices.end(), set.text);
  if (found == choices.end()) fail_choice(name, set.text, choices);
  return static_cast<std::int64_t>(found - choices.begin());
}

CLI::Option* add_set(CLI::App& app, std::vector<SetOption>& target,
                     const std::string& description) {
  return app
      .add_option_function<std::vector<std::string>>(
          "--set",
          [&target](const std::vector<std::string>& given) {
            for (const auto& text : given) {
              const auto set = parse_set(text);
              for (const auto& before : target) {
                if (before.name != set.name) continue;
                throw CLI::ValidationError("--set", fmt::format("{} is set twice", set.name));
              }
              target.push_back(set);
            }
          },
          description)
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
}

}  // namespace tessera::programs
